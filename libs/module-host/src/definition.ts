import { existsSync, readFileSync, statSync } from 'node:fs';
import { createRequire, registerHooks } from 'node:module';
import { dirname, isAbsolute, join, resolve as resolvePath } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { ConfigError, isRookeryModule, MODULE_API_VERSION, type RookeryModule } from '@rookery/module-api';
import { isJsonObject } from '@rookery/matrix-types';
import { urlInCode, urlOfCode, withoutMark } from './code-files.js';
import { ModuleLoadError } from './errors.js';
import { isPath, packageOfModule, splitFragment } from './names.js';
import { fitOf, misfitOf } from './versions.js';

const scheme = 'rookery-module:';
/** Folder beside the settings file into which the operator's command installs modules. */
export const modulesFolder = 'modules';
/** Where that folder is for the moment in which another one takes its place. */
export const formerModulesFolder = 'modules.former';
/** What modules import without having it installed: they get the server's own. */
const provided = ['@rookery/module-api', '@rookery/matrix-types'];
let providing = false;
const moduleName = /^[a-z0-9][a-z0-9._-]{0,63}$/;

/** A module need not bring @rookery/module-api: where its own look-up finds none, the server's takes its place. */
function provideModuleApi(): void {
  if (providing) return;
  providing = true;
  const own = new Map(provided.map((name) => [name, import.meta.resolve(name)]));
  registerHooks({
    resolve(asked, context, next) {
      const url = own.get(asked);
      if (url === undefined) {
        const found = next(asked, context);
        const marked = urlInCode(found.url, context.parentURL);
        return marked === found.url ? found : { ...found, url: marked };
      }
      try {
        return next(asked, context);
      } catch {
        return { url, shortCircuit: true };
      }
    },
  });
}

/**
 * Imports the module of an entry in this thread, and looks at it. Its configuration is not looked at yet.
 * @throws ModuleLoadError
 */
export async function importDefinition(
  entry: { readonly module: string; readonly settingsOption?: string; readonly installedIn?: string | undefined },
  configDir: string,
): Promise<{ readonly definition: RookeryModule; readonly url: string; readonly warnings: readonly string[] }> {
  provideModuleApi();
  const [specifier, exportName] = splitFragment(entry.module);
  const url = resolveModule(specifier, configDir, entry);
  let namespace: Readonly<Record<string, unknown>>;
  try {
    namespace = (await import(urlOfCode(url))) as Record<string, unknown>;
  } catch (error) {
    const file = fileURLToPath(url);
    const place = placeIn(error, dirname(file));
    const failed = asLoadError(entry.module, error, `${place ?? file} cannot be loaded: `);
    if (!(error instanceof SyntaxError)) throw failed;
    const newer = failed.problem.includes("'@rookery/module-api' does not provide");
    if (place !== undefined && !newer) throw failed;
    const hint = newer
      ? `it may need a newer module API than this server's ${MODULE_API_VERSION}: update the server, or install an older version of the module`
      : // The engine keeps the place to itself.
        `to see where: node --check ${file}`;
    throw new ModuleLoadError(entry.module, `${failed.problem}; ${hint}`, undefined, { cause: error });
  }
  const definition = pickModule(namespace, specifier, exportName);
  return { definition, url, warnings: [...checkDefinition(definition), ...checkPeer(definition.name, url)] };
}

/** File and line of the code in a folder that an error came from; of code that cannot be read, where that breaks off. */
function placeIn(error: unknown, folder: string): string | undefined {
  const stack = error instanceof Error && typeof error.stack === 'string' ? error.stack : '';
  for (const [, place = ''] of withoutMark(stack).matchAll(/(?:file:\/\/)?((?:[A-Za-z]:)?[/\\][^\s()]*:\d+)/g)) {
    if (place.startsWith(folder)) return place;
  }
  return undefined;
}

/** `package.module.Class`; packages of npm have no capital letters. */
const pythonClass = /^\w+(?:\.\w+)*\.[A-Z]\w*$/;

/**
 * Where a module lies: looked up as an `import` in the configuration file's folder would.
 * @param entry `settingsOption` as in {@link ModuleEntry}, for the command that mends what is missing; `installedIn` likewise
 * @throws ModuleLoadError
 */
export function resolveModule(
  specifier: string,
  configDir: string,
  entry: { readonly settingsOption?: string; readonly installedIn?: string | undefined } = {},
): string {
  const { settingsOption = '', installedIn } = entry;
  const add = (what: string): string => `run: rookery module add ${what}${settingsOption}`;
  if (isPath(specifier)) {
    const path = specifier.startsWith('file:') ? fileURLToPath(specifier) : resolvePath(configDir, specifier);
    if (!existsSync(path)) {
      throw new ModuleLoadError(specifier, `there is no ${path}: correct the path, or ${add('PACKAGE')}`);
    }
    return statSync(path).isDirectory() ? entryOfFolder(specifier, path) : pathToFileURL(path).href;
  }
  const name = packageOfModule(specifier) ?? specifier;
  const url = resolveInstalled(specifier, configDir, installedIn, (error) => {
    const { code, message } = error as NodeJS.ErrnoException;
    const [reason = ''] = message.split('\n');
    const [, wanted = specifier] = /cannot find (?:package|module) '([^']+)'/i.exec(reason) ?? [];
    if (isAbsolute(wanted)) return `its entry ${wanted} is missing: build the module first`;
    if (isMissing(error) && pythonClass.test(specifier))
      return `this is the name of a Python class, which does not load here; what takes its place says: rookery module suggest${settingsOption}`;
    if (isMissing(error)) return `the package is not installed for ${resolvePath(configDir)}; ${add(name)}`;
    if (code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') return reason;
    const part = specifier === name ? 'no entry' : `no ${specifier.slice(name.length + 1)}`;
    return `its package.json exports ${part}: correct the settings, or the package`;
  });
  if (!url.startsWith('file:')) throw new ModuleLoadError(specifier, 'it is a part of Node.js, and no module');
  if (existsSync(fileURLToPath(url))) return url;
  throw new ModuleLoadError(specifier, `its entry ${fileURLToPath(url)} is missing: build the module first`);
}

/** Told by its words, since not every loader gives it a code. */
const isMissing = (error: unknown): boolean => /cannot find (?:package|module)/i.test((error as Error).message);

/** Packages may be installed for the settings file itself, or beside it where `rookery module add` puts them. */
function resolveInstalled(
  specifier: string,
  configDir: string,
  installedIn: string | undefined,
  problemOf: (error: unknown) => string,
): string {
  const folder = resolvePath(configDir);
  const folders = installedIn === undefined ? [modulesFolder, formerModulesFolder] : [resolvePath(installedIn)];
  let problem: unknown;
  for (const importer of ['homeserver.yaml', ...folders.map((one) => join(one, 'package.json'))]) {
    try {
      return resolveFrom(specifier, resolvePath(folder, importer));
    } catch (error) {
      // What is wrong with a package that is there says more than that it is not elsewhere.
      if (problem === undefined || isMissing(problem)) problem = error;
    }
  }
  throw new ModuleLoadError(specifier, problemOf(problem), undefined, { cause: problem });
}

/** Node's own resolution, with another file as the importer; as `require` where a package knows nothing else. */
function resolveFrom(specifier: string, importer: string): string {
  const parentURL = pathToFileURL(importer).href;
  const hooks = registerHooks({
    resolve: (asked, context, next) =>
      asked.startsWith(scheme) ? next(asked.slice(scheme.length), { ...context, parentURL }) : next(asked, context),
  });
  try {
    return import.meta.resolve(scheme + specifier);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') throw error;
    try {
      return pathToFileURL(createRequire(importer).resolve(specifier)).href;
    } catch {
      throw error;
    }
  } finally {
    hooks.deregister();
  }
}

/** The entry of a package by its folder: by its own name where it has `exports`, else `main`. */
function entryOfFolder(specifier: string, folder: string): string {
  const manifestPath = join(folder, 'package.json');
  const index = ['index.js', 'index.mjs', 'index.ts', 'index.cjs'].map((name) => join(folder, name)).find(existsSync);
  if (!existsSync(manifestPath)) {
    if (index !== undefined) return pathToFileURL(index).href;
    throw new ModuleLoadError(specifier, `${folder} has neither a package.json nor an index.js`);
  }
  let manifest: unknown;
  try {
    manifest = JSON.parse(readFileSync(manifestPath, 'utf8'));
  } catch (error) {
    throw new ModuleLoadError(specifier, `${manifestPath} cannot be read`, undefined, { cause: error });
  }
  if (!isJsonObject(manifest)) throw new ModuleLoadError(specifier, `${manifestPath} is not a JSON object`);
  let path: string;
  if (manifest.exports !== undefined && typeof manifest.name === 'string') {
    try {
      path = fileURLToPath(resolveFrom(manifest.name, manifestPath));
    } catch (error) {
      const problem = `the exports of ${manifestPath} lead nowhere: build the module first`;
      throw new ModuleLoadError(specifier, problem, undefined, { cause: error });
    }
  } else {
    path = typeof manifest.main === 'string' ? join(folder, manifest.main) : (index ?? join(folder, 'index.js'));
    try {
      // A `main` may leave out its ending, or be a folder.
      path = createRequire(manifestPath).resolve(path);
    } catch {
      // said below
    }
  }
  if (!existsSync(path)) throw new ModuleLoadError(specifier, `its entry ${path} is missing: build the module first`);
  return pathToFileURL(path).href;
}

function pickModule(
  namespace: Readonly<Record<string, unknown>>,
  specifier: string,
  exportName: string | undefined,
): RookeryModule {
  // What a compiler made of ESM in CommonJS has its default inside the default.
  const fallback = namespace.default;
  const exported: Readonly<Record<string, unknown>> =
    isJsonObject(fallback) && !isRookeryModule(fallback)
      ? { ...fallback, ...namespace, default: fallback.default }
      : namespace;
  if (exportName !== undefined) {
    const chosen = exported[exportName];
    if (isRookeryModule(chosen)) return chosen;
    throw new ModuleLoadError(specifier, `its export ${exportName} is no module made by defineModule()`);
  }
  if (isRookeryModule(exported.default)) return exported.default;
  const named = Object.entries(exported).filter(([name, value]) => name !== 'module.exports' && isRookeryModule(value));
  const [only] = named;
  if (only && named.length === 1) return only[1] as RookeryModule;
  const hint =
    named.length === 0
      ? 'it exports no module made by defineModule() of @rookery/module-api'
      : `it exports several modules; pick one: ${named.map(([name]) => `${specifier}#${name}`).join(', ')}`;
  throw new ModuleLoadError(specifier, hint);
}

/** @returns what is odd about it */
function checkDefinition({ name, apiVersion, parseConfig: parse, register }: RookeryModule): string[] {
  if (typeof name !== 'string' || !moduleName.test(name)) {
    throw new ModuleLoadError(String(name), 'a module is named with 1 to 64 characters of a-z, 0-9, ".", "_" and "-"');
  }
  if (typeof parse !== 'function' || typeof register !== 'function') {
    throw new ModuleLoadError(name, 'it has no parseConfig() or no register()');
  }
  const [major, minor] = numbers(MODULE_API_VERSION);
  const [wantedMajor, wantedMinor] = numbers(apiVersion);
  if (Number.isNaN(wantedMajor) || Number.isNaN(wantedMinor)) {
    throw new ModuleLoadError(name, `its apiVersion ${JSON.stringify(apiVersion)} is not of the form "1.0"`);
  }
  if (wantedMajor === major && wantedMinor <= minor) return [];
  const made = `it is made for module API ${apiVersion}, this server has ${MODULE_API_VERSION}`;
  if (wantedMajor === major) return [`${made}: what is newer is not there; update the server`];
  throw new ModuleLoadError(
    name,
    `${made}; ` +
      (wantedMajor > major
        ? 'update the server or install an older version of the module'
        : 'install a newer version of the module'),
  );
}

/** What the package of a module says that it was made for. @returns what is odd about it @throws ModuleLoadError */
function checkPeer(name: string, url: string): string[] {
  const range = peerRangeOf(dirname(fileURLToPath(url)));
  if (range === undefined) return [];
  const version = ownApiVersion();
  const fit = fitOf(range, version);
  if (fit === 'fits') return [];
  if (fit === 'another server') throw new ModuleLoadError(name, misfitOf(range, version));
  return [
    `it is made for @rookery/module-api ${range}, this server has ${version}: what is newer is not there; update the server`,
  ];
}

/** What the package around a folder asks for. */
function peerRangeOf(start: string): string | undefined {
  for (let folder = start; ; folder = dirname(folder)) {
    const path = join(folder, 'package.json');
    if (existsSync(path)) {
      try {
        const manifest = JSON.parse(readFileSync(path, 'utf8')) as Readonly<Record<string, unknown>>;
        // What is a dependency it does not get either: it is lent the server's.
        const ranges = [manifest['peerDependencies'], manifest['dependencies']].map((list) =>
          isJsonObject(list) ? list['@rookery/module-api'] : undefined,
        );
        return ranges.find((range) => typeof range === 'string');
      } catch {
        return undefined;
      }
    }
    if (folder === dirname(folder)) return undefined;
  }
}

let apiVersion: string | undefined;
/** Version of the package that modules are lent. */
export function ownApiVersion(): string {
  const manifest = new URL('../package.json', import.meta.resolve('@rookery/module-api'));
  apiVersion ??= (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version;
  return apiVersion;
}

function numbers(version: unknown): [major: number, minor: number] {
  const found = typeof version === 'string' ? /^(\d{1,4})\.(\d{1,4})$/.exec(version) : null;
  return [Number(found?.[1] ?? NaN), Number(found?.[2] ?? NaN)];
}

/** Lets a module check its configuration. @throws ModuleLoadError, whose cause is the module's own ConfigError */
export function parseConfig(definition: RookeryModule, given: unknown): unknown {
  const { name } = definition;
  let config: unknown;
  try {
    config = definition.parseConfig(given);
  } catch (error) {
    if (!ConfigError.is(error)) throw asLoadError(name, error, 'parseConfig() failed: ');
    throw new ModuleLoadError(name, problemsOf(error)[0]!.problem, undefined, { cause: error });
  }
  if (typeof (config as { then?: unknown } | undefined)?.then === 'function') {
    (config as Promise<unknown>).then(undefined, () => {});
    throw new ModuleLoadError(name, 'parseConfig() is asynchronous: check there, and do the work in register()');
  }
  return config;
}

/** One thing that is wrong with a module's `config`. */
export interface ConfigProblem {
  readonly problem: string;
  /** Keys that lead there from the module's entry. */
  readonly path: readonly (string | number)[];
}

const maxProblems = 20;

/** Everything that is wrong, the module's own words made safe. At least one. */
export function problemsOf(error: ConfigError): ConfigProblem[] {
  const others: readonly unknown[] = Array.isArray(error.others) ? error.others : [];
  return [error, ...others].slice(0, maxProblems).map((one) => {
    const { message, path: given } = one as { readonly message: unknown; readonly path: unknown };
    const path = Array.isArray(given) ? given.map((key) => (typeof key === 'number' ? key : String(key))) : [];
    const place = path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${key}`)).join('');
    return { problem: `config${place}: ${String(message)}`, path: ['config', ...path] };
  });
}

/** What is wrong as one error, each thing with its place. @param problems at least one */
export function misconfigured(
  name: string,
  problems: readonly ConfigProblem[],
  where: ((path: readonly (string | number)[]) => string | undefined) | undefined,
  options?: ErrorOptions,
): ModuleLoadError {
  const [first, ...others] = problems;
  const further = others.map(({ problem, path }) => `; ${[where?.(path), problem].filter(Boolean).join(': ')}`);
  return new ModuleLoadError(name, `${first!.problem}${further.join('')}`, where?.(first!.path), options);
}

/** Any error as one that names the module. */
export function asLoadError(module: string, error: unknown, prefix = ''): ModuleLoadError {
  if (error instanceof ModuleLoadError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ModuleLoadError(module, prefix + message, undefined, { cause: error });
}
