import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { fileProblem } from '@rookery/platform';
import {
  type CST,
  type Document,
  isMap,
  isScalar,
  isSeq,
  type Pair,
  parseDocument,
  stringify,
  type YAMLSeq,
} from 'yaml';
import { packageOfModule } from '@rookery/module-host';
import { CommandError } from '../command-error.js';
import { replaceFile } from '../replace-file.js';

/** A settings file, read. */
interface Source {
  readonly file: string;
  readonly text: string;
  readonly document: Document;
  /** What `modules` says. */
  readonly entries: readonly unknown[];
}

/** Whether a settings file says something about modules. @throws CommandError */
export const listsModules = (file: string): boolean => read(file).document.has('modules');

/** What a settings file calls its modules, in order. @throws CommandError */
export const moduleEntries = (file: string): string[] => read(file).entries.map(nameOf);

/** What a settings file calls the modules of a package: `pkg`, `pkg#one`, `pkg/part`. @throws CommandError */
export const entriesOfPackage = (file: string, name: string): string[] =>
  moduleEntries(file).filter((entry) => packageOfModule(entry) === name);

/**
 * Lists a module in a settings file, as the last one. Nothing else of the text changes.
 * @returns whether it was not listed before
 * @throws CommandError
 */
export function addModuleEntry(file: string, module: string): boolean {
  const source = read(file);
  if (source.entries.some((entry) => nameOf(entry) === module)) return false;
  write(source, withEntry(source, module), [...source.entries, { module }], module);
  return true;
}

/**
 * Takes a module out of a settings file. Nothing else of the text changes, comments above the entry stay.
 * @returns whether it was listed
 * @throws CommandError
 */
export function removeModuleEntry(file: string, module: string): boolean {
  const source = read(file);
  const index = source.entries.findIndex((entry) => nameOf(entry) === module);
  if (index < 0) return false;
  write(source, withoutEntry(source, index), source.entries.toSpliced(index, 1), module);
  return true;
}

const nameOf = (entry: unknown): string => String((entry as { module?: unknown } | null)?.module);

function read(file: string): Source {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${fileProblem(error)}`);
  }
  const document = parse(text);
  const problem = document.errors.find(isProblem);
  if (problem) throw new CommandError(`${file} is not YAML: ${problem.message.split('\n')[0] ?? ''}`);
  const entries = settingsOf(document).modules ?? [];
  if (!Array.isArray(entries)) throw new CommandError(`${file}: modules is not a list`);
  return { file, text, document, entries };
}

/** As the server reads it; with the places of everything. */
const parse = (text: string): Document =>
  parseDocument(text, { version: '1.1', merge: true, keepSourceTokens: true, logLevel: 'silent' });

/** Of a key that stands twice the last one holds, with a warning at the start. */
const isProblem = ({ code }: Document['errors'][number]): boolean => code !== 'DUPLICATE_KEY';

const settingsOf = (document: Document): { readonly modules?: unknown } =>
  (document.toJS() as { readonly modules?: unknown } | null) ?? {};

/** Replaces the text, if it says then what it should. */
function write(
  { file, text, document }: Source,
  changed: string | undefined,
  entries: unknown[],
  module: string,
): void {
  const wanted = { ...settingsOf(document), modules: entries };
  if (changed === undefined || !says(changed, wanted))
    throw new CommandError(
      `${file} is written in a way that only you can change: see to ${module} under modules there`,
    );
  if (changed !== text) replaceFile(file, changed);
}

function says(text: string, wanted: { readonly modules: readonly unknown[] }): boolean {
  const document = parse(text);
  if (document.errors.some(isProblem)) return false;
  try {
    return isDeepStrictEqual({ ...settingsOf(document), modules: settingsOf(document).modules ?? [] }, wanted);
  } catch {
    return false; // an alias that leads nowhere now
  }
}

function withEntry({ text, document }: Source, module: string): string | undefined {
  const newline = text.includes('\r\n') ? '\r\n' : '\n';
  const list = listOf(document);
  const last = list?.items.at(-1)?.range;
  if (list && last) {
    if (list.flow === true) return splice(text, last[1], last[1], `, { module: ${JSON.stringify(module)} }`);
    const end = endOfLine(text, last[1]);
    const indent = ' '.repeat(columnOf(text, list.range?.[0] ?? 0));
    return splice(text, end, end, `${text[end - 1] === '\n' ? '' : newline}${indent}- ${entryText(module)}${newline}`);
  }
  const item = `  - ${entryText(module)}${newline}`;
  const key = keyRange(document);
  if (!key) return `${text}${text === '' || text.endsWith('\n') ? '' : newline}modules:${newline}${item}`;
  // `modules:`, `modules: []`, `modules: ~`: the value goes, what is behind it on the line stays.
  const end = endOfLine(text, key[1]);
  const line = text.slice(key[1], end).replace(/:[ \t]*(?:\[[ \t]*\]|~|null\b)/i, ':');
  return splice(text, key[1], end, `${line}${line.endsWith('\n') ? '' : newline}${item}`);
}

function withoutEntry({ text, document }: Source, index: number): string | undefined {
  const list = listOf(document);
  const [before, range, after] = [index - 1, index, index + 1].map((at) => list?.items[at]?.range);
  const key = keyRange(document);
  if (!list?.range || !range || !key) return undefined;
  if (list.flow === true) {
    const [from, to] = after ? [range[0], after[0]] : [before ? before[1] : range[0], range[1]];
    return splice(text, from, to, '');
  }
  const dash = dashOf(list, index);
  if (dash === undefined) return undefined;
  const rest = splice(text, dash - columnOf(text, dash), endOfLine(text, range[1]), '');
  if (list.items.length > 1) return rest;
  // Nothing is listed any more: the key goes, too, unless the operator keeps notes there.
  const keyEnd = endOfLine(text, key[1]);
  const between = text.slice(keyEnd, dash - columnOf(text, dash));
  if (between.trim() === '' && !text.slice(key[1], keyEnd).includes('#')) {
    return splice(text, key[0], endOfLine(text, range[1]), '');
  }
  return splice(rest, key[1] + 1, key[1] + 1, ' []');
}

const entryText = (module: string): string => `module: ${stringify(module, { lineWidth: 0 }).trimEnd()}`;

const splice = (text: string, from: number, to: number, put: string): string =>
  text.slice(0, from) + put + text.slice(to);

/** Where the next line begins; a value that ends with its line is there already. */
function endOfLine(text: string, at: number): number {
  if (text[at - 1] === '\n') return at;
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end + 1;
}

const columnOf = (text: string, at: number): number => at - (text.lastIndexOf('\n', at - 1) + 1);

const pairOfModules = ({ contents }: Document): Pair | undefined =>
  isMap(contents) ? contents.items.findLast(({ key }) => isScalar(key) && key.value === 'modules') : undefined;

/** The list itself; not one that stands elsewhere and is referred to. */
function listOf(
  document: Document,
): YAMLSeq<{ readonly range?: readonly [number, number, number] | null }> | undefined {
  const node = pairOfModules(document)?.value;
  return isSeq(node) ? (node as ReturnType<typeof listOf>) : undefined;
}

function keyRange(document: Document): readonly [number, number, number] | undefined {
  const pair = pairOfModules(document);
  return (isScalar(pair?.key) ? pair.key.range : undefined) ?? undefined;
}

/** Where the `-` of an entry stands. */
function dashOf(list: YAMLSeq<unknown>, index: number): number | undefined {
  const token = list.srcToken as CST.BlockSequence | undefined;
  return token?.items[index]?.start.find(({ type }) => type === 'seq-item-ind')?.offset;
}
