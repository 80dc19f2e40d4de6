import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  type Pair,
  parseDocument,
  type YAMLMap,
} from 'yaml';
import { fileProblem } from '../file-problem.js';
import { isSection, type SettingPath } from './kinds.js';
import type { ConfigProblem } from './problem.js';
import { settingsTags } from './yaml-scalars.js';

/** Largest settings file, bytes. */
const fileLimitBytes = 4 * 1024 * 1024;
/** Most files of one folder. */
const filesLimit = 1000;

/** One YAML file, read. */
export interface SettingsFile {
  readonly file: string;
  /** Its top level; empty for an empty file. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly problems: readonly ConfigProblem[];
  /** Line of a value's key, or of the nearest thing around it. */
  line(path: SettingPath): number | undefined;
  /** The text of a scalar as it stands in the file, without quotes; `undefined` where there is none. */
  written(path: SettingPath): string | undefined;
}

/** Several files as one: later top-level keys replace earlier ones whole. */
export interface MergedSettings {
  readonly raw: Record<string, unknown>;
  readonly problems: readonly ConfigProblem[];
  readonly locate: (path: SettingPath) => string | undefined;
  /** As {@link SettingsFile.written}, of the file that the key is taken from. */
  readonly written: (path: SettingPath) => string | undefined;
}

/** Sections that say the same in two forms: one in a later file replaces the other in an earlier one. */
const sameMatter: ReadonlyMap<string, string> = new Map([
  ['database', 'databases'],
  ['databases', 'database'],
]);

/** Errors whose cause is a line that is moved to the right or left, which their texts do not say. */
const ofSpaces: ReadonlySet<string> = new Set(['BAD_INDENT', 'BLOCK_AS_IMPLICIT_KEY', 'MULTILINE_IMPLICIT_KEY']);

/**
 * Reads YAML as the field's files are written: `yes` and `on` are true, `y` is text, `<<` merges; see {@link settingsTags}.
 */
export function parseSettings(file: string, text: string): SettingsFile {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, {
    version: '1.1',
    merge: true,
    lineCounter,
    prettyErrors: false,
    logLevel: 'silent',
    customTags: settingsTags,
  });
  const at = (offset: number): string => `${file}:${lineCounter.linePos(offset).line}`;
  const problems: ConfigProblem[] = document.errors.map((error) => ({
    level: error.code === 'DUPLICATE_KEY' ? 'warning' : 'error',
    where: at(error.pos[0]),
    setting: '',
    message:
      error.code === 'DUPLICATE_KEY'
        ? 'the same key stands here twice: the last one holds'
        : `not valid YAML: ${error.message}${ofSpaces.has(error.code) ? '; are the spaces at the beginning of this line and the next right?' : ''}`,
  }));
  let values: Record<string, unknown> = {};
  if (!problems.some((problem) => problem.level === 'error')) {
    try {
      const parsed: unknown = document.toJS({ maxAliasCount: 1000 });
      // An alias may stand inside what it refers to; nothing could be done with that.
      JSON.stringify(parsed);
      if (isSection(parsed)) values = parsed;
      else if (parsed !== null && parsed !== undefined) {
        problems.push({
          level: 'error',
          where: `${file}:1`,
          setting: '',
          message: 'expected settings, one `name: value` per line',
        });
      }
    } catch (error) {
      problems.push({
        level: 'error',
        where: file,
        setting: '',
        message: `not usable: ${(error as Error).message.split('\n', 1)[0]}`,
      });
    }
  }
  return {
    file,
    values,
    problems,
    line: (path) => {
      const { offset } = placeOf(document, path);
      return offset === undefined ? undefined : lineCounter.linePos(offset).line;
    },
    written: (path) => {
      const { node } = placeOf(document, path);
      return isScalar(node) ? node.source : undefined;
    },
  };
}

/**
 * Where the last part of the path stands that the document has, and what is there if it is all of the path; merged and aliased parts
 * count as their source.
 */
function placeOf(
  document: Document,
  path: SettingPath,
): { readonly offset: number | undefined; readonly node: unknown } {
  let node: unknown = document.contents;
  let offset: number | undefined;
  for (const part of path) {
    let next: unknown;
    if (isMap(node)) {
      const pair = findPair(document, node, String(part));
      if (!pair) {
        if (part === 0) continue; // one entry that stands without its list
        return { offset, node: undefined };
      }
      if (isNode(pair.key) && pair.key.range) offset = pair.key.range[0];
      next = pair.value;
    } else if (isSeq(node) && typeof part === 'number') {
      next = node.items[part];
      if (isNode(next) && next.range) offset = next.range[0];
    }
    if (next === undefined) return { offset, node: undefined };
    node = isAlias(next) ? next.resolve(document) : next;
  }
  return { offset, node };
}

function findPair(document: Document, map: YAMLMap, key: string, depth = 0): Pair | undefined {
  const keyOf = (pair: Pair): string => String(isScalar(pair.key) ? pair.key.value : pair.key);
  // The last one: it is the one that holds.
  const own = map.items.findLast((pair) => isPair(pair) && keyOf(pair) === key);
  if (own || depth === 10) return own;
  // What merges has a key of its own kind, which only its text tells.
  for (const merge of map.items.filter((pair) => isScalar(pair.key) && pair.key.source === '<<')) {
    const sources = isSeq(merge.value) ? merge.value.items : [merge.value];
    for (const source of sources) {
      const merged: unknown = isAlias(source) ? source.resolve(document) : source;
      const found = isMap(merged) ? findPair(document, merged, key, depth + 1) : undefined;
      if (found) return found;
    }
  }
  return undefined;
}

/**
 * The files that a path stands for: itself, or the `*.yaml` files of a folder in the order of their names.
 * @throws Error of the file system
 */
export function filesAt(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  const names = readdirSync(path)
    .filter((name) => name.endsWith('.yaml'))
    .sort();
  if (names.length > filesLimit) throw new Error(`more than ${filesLimit} files`);
  return names.map((name) => join(path, name));
}

/** Reads files and folders of files. What cannot be read becomes a problem. */
export function readSources(paths: readonly string[]): MergedSettings {
  // Without a prototype, or a key __proto__ would become one.
  const raw: Record<string, unknown> = Object.create(null);
  const problems: ConfigProblem[] = [];
  const sourceOf = new Map<string, SettingsFile>();
  const failed = (where: string, error: unknown): void => {
    problems.push({ level: 'error', where, setting: '', message: `cannot read: ${fileProblem(error)}` });
  };
  for (const path of paths) {
    let files: string[] = [];
    try {
      files = filesAt(path);
      // Units name a folder for what packages and people may add, which may be nothing.
      if (files.length === 0 && paths.length === 1) failed(path, new Error('the folder has no *.yaml files'));
    } catch (error) {
      failed(path, error);
    }
    for (const file of files) {
      try {
        if (statSync(file).size > fileLimitBytes) throw new Error(`larger than ${fileLimitBytes} bytes`);
        const parsed = parseSettings(file, readFileSync(file, 'utf8'));
        problems.push(...parsed.problems);
        for (const [key, value] of Object.entries(parsed.values)) {
          const other = sameMatter.get(key);
          if (other !== undefined && other in raw && sourceOf.get(other) !== parsed) delete raw[other];
          raw[key] = value;
          sourceOf.set(key, parsed);
        }
      } catch (error) {
        failed(file, error);
      }
    }
  }
  return {
    raw,
    problems,
    locate: (path) => {
      const source = sourceOf.get(String(path[0]));
      const line = source?.line(path);
      return source && line !== undefined ? `${source.file}:${line}` : paths[0];
    },
    written: (path) => sourceOf.get(String(path[0]))?.written(path),
  };
}
