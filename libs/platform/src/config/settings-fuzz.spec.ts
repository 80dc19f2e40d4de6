import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ConfigProblem, describeProblem } from './problem.js';
import { checkConfig } from './load.js';
import { rowOf, type SettingName, settingNames } from './table.js';

/** What people write where something else belongs; as YAML has it. */
const wrong: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, Number.MAX_SAFE_INTEGER],
  ...[
    '',
    ' ',
    'nonsense',
    '%(',
    '{{ x',
    '\u0000',
    'two\nlines',
    '[',
    '^(',
    'https://',
    '1.2.3.4/99',
    '-5m',
    '@',
    './nowhere',
  ],
  ...[
    [],
    [null],
    [1],
    ['nonsense'],
    [[]],
    [{}],
    [{ module: 1 }],
    {},
    { a: 1 },
    { a: null },
    { '': [] },
    { constructor: 1 },
  ],
];

describe('settings that are anything', () => {
  let folder: string;
  let file: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-settings-'));
    file = join(folder, 'homeserver.yaml');
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** The settings in a file, each on a line of its own behind those that are needed. */
  const problemsOf = (
    settings: readonly (readonly [name: SettingName, value: unknown])[],
  ): readonly ConfigProblem[] => {
    const tree: Record<string, unknown> = { server_name: 'example.org', report_stats: false };
    for (const [name, value] of settings) {
      const parts = name.split('.');
      let at = tree;
      for (const part of parts.slice(0, -1)) at = (at[part] ??= {}) as Record<string, unknown>;
      at[parts.at(-1)!] = value;
    }
    writeFileSync(file, JSON.stringify(tree, undefined, 1));
    return checkConfig([file]).problems;
  };
  const expectLine = (name: string, value: unknown, problems: readonly ConfigProblem[]): void => {
    for (const problem of problems) {
      const line = describeProblem(problem);
      expect([name, value, line]).toEqual([name, value, expect.stringMatching(/^[^\p{Cc}]{1,1000}$/u)]);
      expect([name, value, /\bat .*\.[jt]s:\d|undefined|\[object |TypeError|Cannot read/.test(line)]).toEqual([
        name,
        value,
        false,
      ]);
      // What is wrong with something that stands in a file is told with its line.
      if (problem.level === 'error' && problem.message.startsWith('expected'))
        expect([name, value, problem.where]).toEqual([name, value, expect.stringMatching(/homeserver\.yaml:\d+$/)]);
    }
  };

  it.each(wrong.map((value) => [value]))('all at once: %j', (value) => {
    const all = settingNames.filter((name) => name !== 'server_name' && name !== 'report_stats');
    expectLine('all', value, problemsOf(all.map((name) => [name, value] as const)));
  });

  it.each(settingNames.map((name) => [name]))('%s', (name) => {
    const told: string[] = [];
    const context = {
      baseDir: folder,
      error: (_: unknown, message: string) => told.push(message),
      warn: () => undefined,
      written: () => undefined,
      secret: () => undefined,
      takesInline: () => true,
    };
    for (const value of wrong) {
      told.length = 0;
      rowOf(name).kind.read(value, [name], context);
      // What its kind refuses is told above; what it takes meets the rules, alone.
      if (told.length === 0) expectLine(name, value, problemsOf([[name, value]]));
    }
  });
});
