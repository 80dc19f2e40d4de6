// Shared by the checks that look at sources: which files there are, and what each imports.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** The names of the folders in `libs` and `apps` of a project: `libs/rooms`, sorted. */
export function packagesIn(project, groups = ['libs', 'apps']) {
  return groups.flatMap((group) =>
    existsSync(join(project, group))
      ? readdirSync(join(project, group), { withFileTypes: true })
          .filter((entry) => entry.isDirectory())
          .map((entry) => `${group}/${entry.name}`)
          .sort()
      : [],
  );
}

/** The TypeScript files below a folder, without what was installed or built. */
export function sourcesIn(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' || entry.name === 'dist' ? [] : sourcesIn(path);
    return entry.name.endsWith('.ts') ? [path] : [];
  });
}

/** Whether a file is part of what is built. */
export const isBuilt = (file) => !/\.(spec|fixture)\.ts$/.test(file);

/**
 * What a file imports or exports from elsewhere, types included.
 * @returns {{ from: string, names: string[] | undefined, as: string[] | undefined, line: number }[]} `names` as they are called
 *   there, `as` as they are called here; undefined for all
 */
export function importsOf(file) {
  const text = readFileSync(file, 'utf8');
  const statement = /^(?:import|export)\s+(?:type\s+)?(\*(?:\s+as\s+\w+)?|[\w\s,]*\{[^}]*\}|\w+)\s+from\s+'([^']+)'/gm;
  const other = /^import\s+'([^']+)'|(?:\{([^{}]*)\}\s*=\s*await\s+)?\bimport\(\s*'([^']+)'\s*\)/gm;
  const found = [...text.matchAll(statement)].map((match) => ({ match, from: match[2], list: listIn(match[1]) }));
  for (const match of text.matchAll(other)) {
    const taken = match[2]?.replace(/\s*:\s*/g, ' as ');
    found.push({ match, from: match[1] ?? match[3], list: taken === undefined ? undefined : listIn(`{${taken}}`) });
  }
  return found.map(({ match, from, list }) => ({
    from,
    names: list?.map((name) => name.replace(/\s+as\s+.*/, '')),
    as: list?.map((name) => name.replace(/.*\s+as\s+/, '')),
    line: text.slice(0, match.index).split('\n').length,
  }));
}

/** `{ type A, b as c }` → A, b as c; undefined for `*`, and for a default import. */
function listIn(clause) {
  const list = /\{([^}]*)\}/.exec(clause)?.[1];
  return list
    ?.replace(/\/\/.*|\/\*[^]*?\*\//g, '')
    .split(',')
    .map((name) => name.trim().replace(/^type\s+/, ''))
    .filter((name) => name !== '');
}
