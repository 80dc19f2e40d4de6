import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { createProgram } from './program.js';
import { createSynctl } from './synctl-program.js';
import type { Terminal } from './terminal.js';

const root = join(import.meta.dirname, '..', '..', '..');
const pages = [
  'README.md',
  ...['docs/operators', 'docs/modules'].flatMap((folder) =>
    readdirSync(join(root, folder))
      .filter((name) => name.endsWith('.md'))
      .map((name) => `${folder}/${name}`),
  ),
];

interface WrittenCommand {
  readonly page: string;
  readonly line: string;
}

/** Every call of our programs in a page: lines of its examples, and between backticks. */
function commandsIn(page: string): WrittenCommand[] {
  const text = readFileSync(join(root, page), 'utf8');
  const examples = [...text.matchAll(/^ *```(?:sh|bash|ini|dockerfile|cron)?\n([^]*?)^ *```$/gm)].map(
    ([, lines]) => lines ?? '',
  );
  const inline = [...text.replaceAll(/^ *```[^]*?^ *```$/gm, '').matchAll(/`([^`]+)`/g)].map(([, code]) => code ?? '');
  return [...examples.flatMap((lines) => lines.replaceAll('\\\n', ' ').split('\n')), ...inline].flatMap((line) => {
    // As it stands there, behind what runs it, and without what follows it.
    const [, call] =
      /(?:^|ExecStart=|npx |&& |sudo (?:-u \S+ )?)((?:rookery|synctl) [^|>;#&]+)/.exec(line.trim()) ?? [];
    return call === undefined ? [] : [{ page, line: call.trim() }];
  });
}

/** What is wrong with a call, by what the program declares; nothing is run. */
function problemOf(program: Command, line: string): string | undefined {
  let command = program;
  const words = line.split(/\s+/).slice(1);
  while (words[0] !== undefined) {
    const next = command.commands.find(
      (each) => each.name() === words[0] || each.aliases().includes(words[0] as string),
    );
    if (next === undefined) break;
    command = next;
    words.shift();
  }
  // A name alone speaks of a family of commands.
  if (words.length === 0) return undefined;
  let given = 0;
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (!word.startsWith('-')) {
      given += 1;
      continue;
    }
    const own = [command, ...command.commands].flatMap((each) => each.options);
    const name = word.split('=')[0];
    const option = own.find(({ short, long }) => name === short || name === long);
    if (option === undefined) {
      if (name === '--help' || name === '--version') continue;
      return `no option ${name}`;
    }
    if ((option.required || option.optional) && !word.includes('=')) words.shift();
  }
  const inner = command.commands.find(
    (each) => each.name() === (command as unknown as { _defaultCommandName?: string })._defaultCommandName,
  );
  const places = (inner ?? command).registeredArguments;
  const isOpen = places.at(-1)?.variadic === true;
  return given > places.length && !isOpen ? `too many arguments, or no command of that name` : undefined;
}

describe('the commands of the pages', () => {
  const terminal: Terminal = {
    out: () => {},
    note: () => {},
    ask: () => Promise.resolve(''),
    askSecret: () => Promise.resolve(''),
  };
  const programs: Readonly<Record<string, Command>> = {
    rookery: createProgram(terminal),
    synctl: createSynctl(terminal),
  };

  it('are ones that there are, with options that they have', () => {
    const written = pages.flatMap(commandsIn);
    expect(written.length).toBeGreaterThan(60);
    const wrong = written.flatMap(({ page, line }) => {
      const problem = problemOf(programs[line.split(' ')[0] as string] as Command, line);
      return problem === undefined ? [] : [`${page}: ${line}: ${problem}`];
    });
    expect(wrong).toEqual([]);
  });

  it('would be found wrong if they were', () => {
    const { rookery = createProgram(terminal) } = programs;
    expect(problemOf(rookery, 'rookery backup --config a.yaml --too b')).toBe('no option --too');
    expect(problemOf(rookery, 'rookery backup mak')).toMatch(/no command of that name/);
    expect(problemOf(rookery, 'rookery bakup')).toMatch(/no command of that name/);
    expect(problemOf(rookery, 'rookery restore 20260101T000000Z --from /b')).toBeUndefined();
  });
});
