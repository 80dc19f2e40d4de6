import { isAbsolute } from 'node:path';

/** What an entry calls its module, and which of the package's exports it picks, if it says so: `package#export`. */
export function splitFragment(module: string): [specifier: string, exportName: string | undefined] {
  const found = /^(.+)#([A-Za-z_$][\w$]*)$/.exec(module);
  return found?.[1] !== undefined ? [found[1], found[2]] : [module, undefined];
}

/** Whether a module is named by where it lies. */
export const isPath = (specifier: string): boolean =>
  /^\.{1,2}([/\\]|$)/.test(specifier) || isAbsolute(specifier) || specifier.startsWith('file:');

/** The package that an entry means: `@scope/name` for `@scope/name/part#export`; `undefined` for a path. */
export function packageOfModule(module: string): string | undefined {
  const [specifier] = splitFragment(module);
  if (isPath(specifier)) return undefined;
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}
