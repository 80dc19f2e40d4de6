import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CallbackName, callbackTable } from '@rookery/module-api';
import { isJsonObject } from '@rookery/matrix-types';
import { ModuleLoadError } from './errors.js';

/** What a module uses, as the field `rookery` of its package.json says; what is left out is nothing. */
export interface ModuleManifest {
  readonly callbacks: readonly string[];
  /** Its own tables, without the prefix. */
  readonly tables: readonly string[];
  /** Hosts that it asks: names, `*.name` for all below one, or `*`. */
  readonly hosts: readonly string[];
  /** Variables of the environment that it reads. */
  readonly secrets: readonly string[];
  /** Keys of its `config`. */
  readonly settings: readonly string[];
  /** Other modules that it asks. */
  readonly modules: readonly string[];
}

const parts = ['callbacks', 'tables', 'hosts', 'secrets', 'settings', 'modules'] as const;
const maxEntries = 1_000;

/** The package.json around a module's entry, as far as it can be read. */
function packageAround(url: string): { readonly path: string; readonly rookery: unknown } | undefined {
  const start = dirname(fileURLToPath(url));
  for (let folder = start, up = dirname(folder); ; folder = up, up = dirname(folder)) {
    const path = join(folder, 'package.json');
    if (existsSync(path)) {
      try {
        return { path, rookery: (JSON.parse(readFileSync(path, 'utf8')) as { rookery?: unknown }).rookery };
      } catch {
        return undefined;
      }
    }
    if (folder === up) return undefined;
  }
}

/** The manifest of the package that a module's entry belongs to; `undefined` where it has none. @throws ModuleLoadError for rubbish */
export function manifestOf(module: string, url: string): ModuleManifest | undefined {
  const found = packageAround(url);
  return found?.rookery === undefined ? undefined : readManifest(module, found.rookery, found.path);
}

/** Checks the field `rookery` of a package.json. @param place names the file in messages @throws ModuleLoadError */
export function readManifest(module: string, given: unknown, place: string): ModuleManifest {
  const wrong = (what: string): ModuleLoadError => new ModuleLoadError(module, `${place}: rookery${what}`);
  if (!isJsonObject(given)) throw wrong(' is no object');
  for (const key of Object.keys(given)) {
    if (!(parts as readonly string[]).includes(key))
      throw wrong(`.${key} means nothing; there are ${parts.join(', ')}`);
  }
  const lists = parts.map((part) => {
    const list = given[part] ?? [];
    const isList = Array.isArray(list) && list.length <= maxEntries;
    if (!isList || !list.every((one) => typeof one === 'string' && one !== ''))
      throw wrong(`.${part} is no list of names`);
    return [part, Object.freeze(list as string[])] as const;
  });
  const manifest = Object.freeze(Object.fromEntries(lists)) as unknown as ModuleManifest;
  for (const name of manifest.callbacks) {
    if (!Object.hasOwn(callbackTable, name as CallbackName))
      throw wrong(`.callbacks names ${name}, which is no callback`);
  }
  return manifest;
}

/** What a manifest says, a line each, for operators. */
export function describeManifest(manifest: ModuleManifest): string[] {
  const titles = {
    callbacks: 'is asked and told by',
    tables: 'keeps tables',
    hosts: 'sends requests to',
    secrets: 'reads from the environment',
    settings: 'takes the settings',
    modules: 'asks the modules',
  };
  return parts.map((part) => `${titles[part]}: ${manifest[part].length === 0 ? 'nothing' : manifest[part].join(', ')}`);
}

/** Whether a host is one of a manifest's. */
export const isHostAllowed = (hosts: readonly string[], host: string): boolean =>
  hosts.some((one) => one === '*' || one === host || (one.startsWith('*.') && host.endsWith(one.slice(1))));
