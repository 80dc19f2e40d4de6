import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeWhere } from '@rookery/testing';
import {
  type Change,
  compareReleases,
  concerns,
  releaseName,
  releases,
  releasesBetween,
  standing,
  textOf,
} from './index.js';

/** The specification of releases is not part of this repository: it is looked for in `ROOKERY_RELEASES` and beside the checkout. */
function documentText(): string | undefined {
  const folder = join(process.cwd(), '../shared/mission');
  const beside = existsSync(folder) ? readdirSync(folder).filter((name) => /^000_.*\.txt$/.test(name)) : [];
  const candidates = [process.env['ROOKERY_RELEASES'], ...beside.map((name) => join(folder, name))];
  const file = candidates.find((path) => path !== undefined && existsSync(path));
  return file === undefined ? undefined : readFileSync(file, 'utf8');
}

interface Statement {
  readonly line: number;
  readonly section: string;
  readonly text: string;
}

/** Rows of tables, items of lists and sentences, in the words of the protocol. */
function statementsOf(document: string): Statement[] {
  const statements: Statement[] = [];
  let section = '';
  const lines = document.split('\n');
  for (const [index, raw] of lines.entries()) {
    const text = raw
      .replaceAll('_svc', '_synapse')
      .replaceAll('_proto', '_matrix')
      .replaceAll('org.proto', 'org.matrix')
      .replaceAll('svc.module_api', 'synapse.module_api')
      .replaceAll('{base_url}', '')
      .replaceAll('<service_package>', 'package')
      .replaceAll('\\', '')
      .trim();
    if (text.startsWith('#')) section = text.replace(/^#+ /, '');
    const isHead = /^\|[-| ]+\|$/.test(lines[index + 1] ?? '') || /^\|[-| ]+\|$/.test(text);
    if (text === '' || text.startsWith('#') || isHead || /not shown/.test(text) || index < 4) continue;
    // What only leads to what follows it.
    if (/:$|^Bodies are given/.test(text) || /see the .* table|in these steps/.test(text)) continue;
    statements.push({ line: index + 1, section, text: text.replace(/^\|/, '').replace(/^(?:-|\d+\.) /, '') });
  }
  return statements;
}

const stop = new Set(
  'the and for are was with that this from into its not but has have been can may must each which their any all own also only when than then now over under per via shape rule rules type values value default defaults section new old see note notes another since before after until following mentioned release releases part parts'.split(
    ' ',
  ),
);

/** Words that mean something, by their beginnings. */
function words(text: string): Set<string> {
  const found = text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, ' ')
    .split(' ')
    .filter((word) => word.length > 2 && !stop.has(word) && !/^\d+$/.test(word));
  return new Set(found.map((word) => word.slice(0, 5)));
}

/** Names that carry over letter by letter: of settings, callbacks, paths, files. */
const identifiers = (text: string): string[] =>
  [...text.matchAll(/[A-Za-z0-9<{]*(?:[a-z0-9][_/.]|_synapse|_matrix)[A-Za-z0-9_./<>{}]*[A-Za-z0-9}]/g)]
    .map(([name]) => name.replace(/[.,:]$/, ''))
    .filter((name) => !/^v?\d+(\.\d+)*$/.test(name) && !/^(?:e\.g|i\.e)$/.test(name));

const searchable = (change: Change): string => `${change.about} ${textOf(change)}`;

/** How much of a statement's words the best changes say. */
function coverage(statement: string, changes: readonly Change[]): number {
  const wanted = words(statement.replaceAll(/\bv\d+(?:\.\d+)*/g, ''));
  if (wanted.size === 0) return 1;
  const said = changes.map((one) => words(searchable(one)));
  const share = (has: ReadonlySet<string>): number => [...wanted].filter((word) => has.has(word)).length / wanted.size;
  return Math.max(0, ...said.map(share));
}

const named = (text: string): string[] => [
  ...new Set([...text.matchAll(/\bv(\d+\.\d+)(?:\.\d+)?\b/g)].map(([, version = '']) => version)),
];
const inRelease = (version: string): readonly Change[] =>
  releases.find((release) => release.version === version)?.changes ?? [];

const document = documentText();
const withDocument = describeWhere(document !== undefined, 'the specification of releases is not beside the checkout');

withDocument('the release register and the specification of releases', () => {
  const statements = statementsOf(document ?? '');

  it('knows every release', () => {
    const missing = statements
      .filter(({ section }) => section === 'Versioning')
      .flatMap(({ text }) => named(text.split('|')[0] ?? ''))
      .filter((version) => inRelease(version).length === 0);
    expect(missing).toEqual([]);
  });

  it('has each change in its release', () => {
    const missing: string[] = [];
    for (const { line, text } of statements.filter(({ section }) => section === 'Versioning')) {
      const [first = '', ...rest] = text.split('|');
      for (const version of named(first)) {
        for (const piece of rest.join(' ').split(/;|\. (?=[A-Z])/)) {
          const own = named(piece);
          if (own.length > 0 && !own.includes(version)) continue;
          const changes = inRelease(version);
          const share = coverage(piece, changes);
          if (share < 0.5) missing.push(`${line}: ${version}: ${piece.trim()} (${share.toFixed(2)})`);
        }
      }
    }
    expect(missing).toEqual([]);
  });

  it('has every other statement', () => {
    const missing: string[] = [];
    for (const { line, section, text } of statements) {
      if (section === 'Versioning') continue;
      const versions = named(text).filter((version) => inRelease(version).length > 0);
      const told = versions.length > 0 ? versions.flatMap(inRelease) : releases.flatMap((release) => release.changes);
      const share = coverage(text, [...standing, ...told]);
      if (share < 0.5) missing.push(`${line}: ${text} (${share.toFixed(2)})`);
    }
    expect(missing).toEqual([]);
  });

  it('the register has every name that the changelog says changed', () => {
    const all = [...standing, ...releases.flatMap((release) => release.changes)].map(searchable).join('\n');
    const missing = statements.flatMap(({ line, text }) =>
      identifiers(text)
        .filter((name) => !all.includes(name))
        .map((name) => `${line}: ${name}`),
    );
    expect(missing).toEqual([]);
  });
});

describe('the release register', () => {
  it('is in order, and names each release once', () => {
    const versions = releases.map(({ version }) => version);
    expect(versions).toEqual([...new Set(versions)].sort(compareReleases));
    for (const version of versions) expect(releaseName(version)).toBe(version);
  });

  it('reads versions as people write them', () => {
    expect(['v1.62.0', '1.62', '1.62.0rc1', 'Rookery 0.1.0', 'rookery-0.1.0', 'x', '1'].map(releaseName)).toEqual([
      ...['1.62', '1.62', '1.62', 'rookery-0.1.0', 'rookery-0.1.0', undefined, undefined],
    ]);
    expect(releasesBetween('1.86', '1.89').map(({ version }) => version)).toEqual(['1.88', '1.89']);
    expect(releasesBetween('1.156', 'rookery-0.1.0').map(({ version }) => version)).toEqual(['1.157', 'rookery-0.1.0']);
  });

  it('tells by settings whom a change concerns', () => {
    const find = (path: string) => (path === 'a.b' ? { value: true, file: 'x', line: 3 } : undefined);
    const at = [{ setting: 'a.b', value: true, file: 'x', line: 3 }];
    expect(concerns(undefined, find)).toEqual([]);
    expect(concerns({ settings: ['a.b', 'c'] }, find)).toEqual(at);
    expect(concerns({ settings: ['c'] }, find)).toBeUndefined();
    expect(concerns({ settings: ['c'], when: 'missing' }, find)).toEqual([]);
    expect(concerns({ settings: ['a.b'], when: 'missing' }, find)).toBeUndefined();
    expect(concerns({ settings: ['a.b'], when: (value) => value === true }, find)).toEqual(at);
    expect(concerns({ settings: ['a.b'], when: (value) => value === false }, find)).toBeUndefined();
  });
});
