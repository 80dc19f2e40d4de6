import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { templateOf } from './template.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));

/** The blocks of code of a page, each with the line that it begins at. */
function blocksOf(page: string): { name: string; code: string }[] {
  const text = readFileSync(join(root, page), 'utf8');
  return [...text.matchAll(/```(?:ts|js)\n([\s\S]*?)```/g)].map(({ 1: code = '', index }) => ({
    name: `${page.replaceAll(/[/.]/g, '-')}-${text.slice(0, index).split('\n').length}`,
    code,
  }));
}

/** What readers put in the place of names that the pages do not explain. */
const surroundings = `
import * as moduleApi from '@rookery/module-api';
import type { ModuleApi, ModuleEventDraft, SpamCheckerCallbacks, ThirdPartyRulesCallbacks } from '@rookery/module-api';
declare global {
  const api: ModuleApi;
  const userId: string;
  const roomId: string;
  const body: string;
  const config: { readonly url: string };
  const check: (event: ModuleEventDraft) => any;
  const isSpammer: (userId: string) => boolean;
  const cleanUp: (api: ModuleApi) => Promise<void>;
  const remind: (payload: unknown) => Promise<void>;
  const lookUp: (userId: string) => Promise<number>;
  const connect: (url: string) => Promise<{ close(): Promise<void> }>;
  const directory: { verify(username: string, password: string): Promise<boolean> };
  const createReadStream: (path: string) => AsyncIterable<Uint8Array>;
  const tape: {
    write(path: string, from: AsyncIterable<Uint8Array>): Promise<void>;
    has(path: string): Promise<boolean>;
    read(path: string): AsyncIterable<Uint8Array>;
  };
  type Callbacks = SpamCheckerCallbacks & ThirdPartyRulesCallbacks;
  const NOT_SPAM: typeof moduleApi.NOT_SPAM;
  const MatrixError: typeof moduleApi.MatrixError;
  type MatrixError = moduleApi.MatrixError;
}
`;

/** As much of a library of schemas as the pages show, so that it need not be installed. */
const schemas = `
declare module 'zod' {
  import type { StandardSchema } from '@rookery/module-api';
  interface Schema<T> extends StandardSchema<T> {
    min(least: number): Schema<T>;
    default(value: T): Schema<T>;
    describe(text: string): Schema<T>;
  }
  export const z: {
    string(): Schema<string>;
    array<T>(of: Schema<T>): Schema<T[]>;
    object<T>(fields: { [Name in keyof T]: Schema<T[Name]> }): Schema<T>;
  };
}
`;

/** A block as a file: a whole module, statements of \`register\`, or members of the object of callbacks. */
function fileOf(code: string): string {
  const whole = code.replaceAll('…', '').replaceAll(/^\s*\/\/.*$/gm, '');
  const imports = whole.match(/^import .*$/gm)?.join('\n') ?? '';
  const rest = whole.replaceAll(/^import .*$/gm, '').trim();
  if (/^export /m.test(rest)) return whole;
  const isMember = /^(?:async )?\w+(?::|\()/.test(rest) && !/^(?:await|return|throw)\b/.test(rest);
  return isMember
    ? `${imports}\nexport const callbacks: Callbacks = {\n${rest}\n};\n`
    : `${imports}\nexport async function register() {\n${rest}\n}\n`;
}

const everyday = ['README.md', 'docs/modules/README.md', 'docs/modules/recipes.md'];
const nest = ['docs/modules/nest.md', 'libs/nest/README.md', 'libs/typeorm/README.md'];

it.each([
  ['plain', everyday, 15],
  ['nest', nest, 4],
] as const)('the code of the pages for authors compiles against the module API (%s)', (style, pages, least) => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-docs-'));
  try {
    for (const [path, content] of templateOf('docs', { api: '*', testing: '*', nest: '*' }, style)) {
      if (path.startsWith('tsconfig')) writeFileSync(join(folder, path), content);
    }
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
    mkdirSync(join(folder, 'src'));
    writeFileSync(join(folder, 'src/surroundings.ts'), surroundings);
    writeFileSync(join(folder, 'src/schemas.d.ts'), schemas);
    const blocks = pages.flatMap(blocksOf);
    expect(blocks.length).toBeGreaterThan(least);
    for (const { name, code } of blocks) writeFileSync(join(folder, 'src', `${name}.ts`), fileOf(code));
    const tsc = join(root, 'node_modules/typescript7/bin/tsc');
    const options = { cwd: folder, encoding: 'utf8', env: { ...process.env, NODE_OPTIONS: '' } } as const;
    const { stdout } = spawnSync(process.execPath, [tsc, '-p', '.', '--pretty', 'false'], options);
    expect(stdout).toBe('');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
