import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** An example of the documents, as a file that a compiler takes. */
export interface DocExample {
  /** Where it stands. */
  readonly place: string;
  readonly text: string;
  /** What readers see of it, without comments. */
  readonly shown: string;
}

/** What examples take for granted, by package, where they import nothing of that name. */
const known: Readonly<Record<string, readonly string[]>> = {
  'module-api': [
    'Codes',
    'ConfigError',
    'contentOf',
    'defineModule',
    'mapUsernameToMxidLocalpart',
    'MatrixError',
    'NOT_SPAM',
    'SafePattern',
  ],
  nest: ['nestModule', 'OnMatrixEvent'],
  passport: ['identifyProfile', 'keepProfile', 'passportProvider', 'profileOf'],
  testing: ['createTestHomeserver', 'startMailSink'],
  typeorm: ['moduleDataSource'],
};
/** What examples are about. */
const given: Readonly<Record<string, string>> = {
  api: "import('@rookery/module-api').ModuleApi",
  event: "import('@rookery/module-api').ModuleEvent",
  context: "import('@rookery/module-api').CallbackContext",
  events: "import('@rookery/nest').MatrixEvents",
  userId: 'string',
  body: 'string',
};
/** What is their authors' own. */
const theirs = [
  ...[
    'askTicketOffice',
    'check',
    'cleanUp',
    'clientID',
    'clientSecret',
    'config',
    'connect',
    'CreateNotes',
    'createReadStream',
    'directory',
  ],
  ...[
    'expect',
    'GitHubStrategy',
    'index',
    'isSpammer',
    'lookUp',
    'Note',
    'NotesModule',
    'NotesSettings',
    'randomUUID',
    'remind',
    'Strategy',
    'tape',
  ],
];
/** What has no types, for a file beside them. */
export const untyped = `declare module 'passport-github2';\n`;
/** What they need that this checkout does not have: those that use it are left out. */
const missing = /from 'zod'/;

/** Everything that the documents for authors of modules, and the docstrings of the packages for them, show in TypeScript. */
export function docExamples(): DocExample[] {
  const documents = readdirSync(join(root, 'docs/modules'))
    // The other two are signatures, written from the code.
    .filter((name) => name.endsWith('.md') && !['api.md', 'callbacks.md'].includes(name))
    .flatMap((name) => examplesIn(join('docs/modules', name), /^```ts\n(.*?)^```/gms, (text) => text));
  const packages = ['module-api', 'testing', 'nest', 'typeorm', 'passport'];
  const docstrings = packages.flatMap((name) => {
    const folder = join('libs', name, 'src');
    return (readdirSync(join(root, folder), { recursive: true }) as string[])
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
      .sort()
      .flatMap((file) =>
        examplesIn(join(folder, file), /^ *\* ```ts\n(.*?)^ *\* ```/gms, (text) => text.replace(/^ *\* ?/gm, ''), name),
      );
  });
  return [...documents, ...docstrings];
}

function examplesIn(path: string, blocks: RegExp, clean: (text: string) => string, own = 'module-api'): DocExample[] {
  const text = readFileSync(join(root, path), 'utf8');
  return [...text.matchAll(blocks)].flatMap((match) => {
    const code = clean(match[1]!);
    if (missing.test(code)) return [];
    return [
      {
        place: `${path}:${text.slice(0, match.index).split('\n').length}`,
        text: compilable(code, own),
        shown: code.replace(/^ *(?:\/\/|\/\*\*| \*).*$/gm, ''),
      },
    ];
  });
}

/** A part of a file in what it may stand in. */
function compilable(text: string, own: string): string {
  const [, imports = '', rest = ''] = /^((?:import [^;]*;\n)*)([^]*)$/.exec(text) ?? [];
  const hasOwn = (name: string): boolean =>
    new RegExp(
      `import (?:type )?(?:${name}\\b|\\{[^}]*\\b${name}\\b)|^(?:export )?(?:const|let|class|function) (?:\\{[^}]*)?\\b${name}\\b`,
      'm',
    ).test(text);
  const taken = (names: readonly string[]): string[] => names.filter((name) => !hasOwn(name));
  const start = [
    imports,
    ...[...new Set(['module-api', own])].map(
      (name) => `import { ${taken(known[name] ?? []).join(', ')} } from '@rookery/${name}';`,
    ),
    ...taken(Object.keys(given))
      .filter((name) => name !== 'events' || own === 'nest')
      .map((name) => `declare const ${name}: ${given[name]};`),
    ...taken(['ModuleEvent']).map((name) => `type ${name} = import('@rookery/module-api').${name};`),
    ...taken(theirs).map((name) => `declare const ${name}: any;`),
    '',
  ].join('\n');
  const [, property = ''] = /^\s*(?:async )?(\w+)(?:\(|: \()/.exec(rest) ?? [];
  if (/^(?:check|user|on|is|get)[A-Z]/.test(property))
    return `${start}export const example: Partial<import('@rookery/module-api').AllCallbacks> = {\n${rest}\n};\n`;
  if (/^@\w+\(/.test(rest)) return `${start}export class Example {\n${rest}}\n`;
  return `${start}${rest}\nexport {};\n`;
}
