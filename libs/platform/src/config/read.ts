import { readFileSync, statSync } from 'node:fs';
import { fileProblem } from '../file-problem.js';
import { applyOldForms, writtenOut } from './compat.js';
import { applyDependentDefaults } from './defaults.js';
import { didYouMean, isLeftEmpty, isSection, type ReadContext, type SettingPath, shown } from './kinds.js';
import type { ConfigParts } from './parts.js';
import type { ConfigProblem } from './problem.js';
import { checkRules } from './rules.js';
import { withoutEffect } from './without-effect.js';
import { isSettingName, rowOf, type SettingName, settingNames } from './table.js';

/** What settings are read from. */
export interface RawSettings {
  /** The merged files as plain values. */
  readonly raw: Readonly<Record<string, unknown>>;
  readonly baseDir: string;
  /** Where they were read from. */
  readonly paths?: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Refuse secrets that stand in the settings themselves. */
  readonly noSecretsInConfig?: boolean;
  /** `homeserver.yaml:12` of a value, or of the nearest thing around it; the file when it is in none. */
  readonly locate: (path: SettingPath) => string | undefined;
  /** A scalar as it stands in the files, where that is known. */
  readonly written?: (path: SettingPath) => string | undefined;
}

/** The values, and everything that is wrong with them. */
export interface ReadResult {
  readonly parts: ConfigParts;
  readonly errors: readonly ConfigProblem[];
}

/** Longest secret file read, bytes. */
const secretLimitBytes = 64 * 1024;

type Node = { readonly children: Map<string, Node>; name?: SettingName };

/** Secrets that may lie in files of their own. */
const secretsWithFile: ReadonlySet<string> = new Set(settingNames.map((name) => rowOf(name).fileOf ?? ''));

/** The names as a tree of sections. */
const tree: Node = { children: new Map() };
for (const name of settingNames) {
  let node = tree;
  for (const key of name.split('.')) {
    let next = node.children.get(key);
    if (!next) node.children.set(key, (next = { children: new Map() }));
    node = next;
  }
  node.name = name;
}

/** Reads, checks and completes settings. Never throws for what the settings say. */
export function readSettings(source: RawSettings): ReadResult {
  const errors: ConfigProblem[] = [];
  const warnings: ConfigProblem[] = [];
  const unreadable = new Set<string>();
  const problem = (level: ConfigProblem['level'], path: SettingPath, message: string): void => {
    (level === 'error' ? errors : warnings).push({
      level,
      where: source.locate(path),
      setting: pathText(path),
      message,
    });
    if (level === 'error') unreadable.add(settingAt(path));
  };
  const context: ReadContext = {
    baseDir: source.baseDir,
    error: (path, message) => problem('error', path, message),
    warn: (path, message) => problem('warning', path, message),
    written: (path) => source.written?.(path),
    secret: (path, file) => readSecret(file, (message) => problem('error', path, message)),
    takesInline: (path) => {
      if (source.noSecretsInConfig)
        problem(
          'error',
          path,
          'secrets must not stand in the settings: write it to a file and name that with the setting beside it that ends in _path or _file',
        );
      return !source.noSecretsInConfig;
    },
  };
  const values = new Map<SettingName, unknown>();
  const given = new Set<string>();
  for (const name of settingNames) values.set(name, rowOf(name).default);

  const raw = writtenOut(source.raw);
  walk(tree, raw, []);

  function walk(node: Node, section: Readonly<Record<string, unknown>>, path: readonly string[]): void {
    for (const [key, value] of Object.entries(section)) {
      const at = [...path, key];
      const child = node.children.get(key);
      if (!child) {
        context.warn(at, `unknown setting, ignored${didYouMean(key, node.children.keys())}`);
      } else if (child.name !== undefined) take(child.name, value, at);
      else if (isSection(value)) {
        if (Object.keys(value).length > 0) given.add(at.join('.'));
        walk(child, value, at);
      } else if (value !== null && value !== undefined) {
        context.error(
          at,
          `expected a section with settings such as ${[...child.children.keys()].slice(0, 3).join(', ')}, found ${shown(value)}`,
        );
      }
    }
  }

  function take(name: SettingName, written: unknown, at: SettingPath): void {
    const row = rowOf(name);
    if (written === undefined) return;
    const value = row.nullable && row.default === undefined && isLeftEmpty(written, row.kind) ? null : written;
    if (row.removed) {
      const harmless = value === null || !asksForSomething(value);
      if (harmless && name.startsWith('experimental_features.')) return;
      const message = `removed in ${row.removed.since}. ${row.removed.instead}`;
      if (row.removed.refuse && !harmless) context.error(at, message);
      else {
        given.add(name);
        values.set(name, value);
        context.warn(at, message);
      }
      return;
    }
    if (value === null && !row.nullable) return;
    given.add(name);
    if (value === null) {
      values.set(name, undefined);
      return;
    }
    if (secretsWithFile.has(name) && !context.takesInline(at)) return;
    // What cannot be read keeps its default, so that the rest can still be checked.
    // What nothing reads need not be right either.
    const reading = row.meaningless === undefined ? context : { ...context, error: () => undefined };
    values.set(name, row.kind.read(value, at, reading) ?? row.default);
    if (row.deprecated !== undefined) context.warn(at, `deprecated: ${row.deprecated}`);
    else if (row.meaningless !== undefined) context.warn(at, `has no meaning here: ${row.meaningless}`);
    else if (withoutEffect.has((row.fileOf ?? name) as SettingName) && asksForSomething(value))
      context.warn(at, 'known, but has no effect in this version');
  }

  for (const name of settingNames) {
    const row = rowOf(name);
    if (row.required && !given.has(name)) context.error([name], `missing: expected ${row.kind.expected}`);
    readFileOf(name, row.fileOf as SettingName | undefined);
  }

  function readFileOf(name: SettingName, target: SettingName | undefined): void {
    const file = values.get(name);
    if (target === undefined || typeof file !== 'string') return;
    const at = name.split('.');
    if (values.get(target) !== undefined || unreadable.has(target))
      context.error(at, `set either ${target} or ${name}, not both`);
    else values.set(target, context.secret(at, file));
  }

  const draft = { values, given, writtenAs: new Map(), env: source.env, context, baseDir: source.baseDir };
  applyOldForms(draft);
  applyDependentDefaults(draft);
  // A rule about a value that could not be read would only add noise; old forms report under their own names.
  const unread = new Set(unreadable);
  checkRules(draft, (name) => unread.has(name));
  const { baseDir: configDir, paths = [], locate } = source;
  return { parts: { values, given, configDir, paths, warnings, locate }, errors };
}

/** Switching off what is not there changes nothing: it is no cause for a warning, nor to refuse. */
const asksForSomething = (value: unknown): boolean => {
  if (typeof value !== 'object' || value === null) return value !== false && value !== '';
  return !(Object.keys(value).length === 0 || (value as { enabled?: unknown }).enabled === false);
};

function readSecret(file: string, report: (message: string) => void): string | undefined {
  try {
    if (statSync(file).size > secretLimitBytes) {
      report(`${file} is larger than ${secretLimitBytes} bytes, which no secret is`);
      return undefined;
    }
    const secret = readFileSync(file, 'utf8').trimEnd();
    if (secret !== '') return secret;
    report(`${file} is empty`);
  } catch (error) {
    report(`cannot read ${file}: ${fileProblem(error)}`);
  }
  return undefined;
}

/** The setting that a place belongs to: `listeners` of `listeners[0].port`. */
function settingAt(path: SettingPath): string {
  for (let length = path.length; length > 0; length--) {
    const name = path.slice(0, length).join('.');
    if (isSettingName(name)) return name;
  }
  return '';
}

/** `listeners[0].port` */
export function pathText(path: SettingPath): string {
  return path.map((part, index) => (typeof part === 'number' ? `[${part}]` : index === 0 ? part : `.${part}`)).join('');
}
