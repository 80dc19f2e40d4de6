import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Draft, valueOf } from './draft.js';
import { resourceNames } from './settings/shapes.js';
import type { SettingName, SettingValue } from './table.js';

/** Fills in what the file leaves out and what follows from other settings or from the environment. */
export function applyDependentDefaults(draft: Draft): void {
  const { env } = draft;
  const silent = <K extends SettingName>(name: K, value: SettingValue<K> | undefined): void => {
    if (!draft.given.has(name) && value !== undefined) draft.values.set(name, value);
  };
  /** As `silent`, also where the file says that there is none: these cannot be without. */
  const absent = <K extends SettingName>(name: K, value: SettingValue<K> | undefined): void => {
    if (valueOf(draft, name) === undefined) draft.values.set(name, value);
  };
  const serverName = valueOf(draft, 'server_name');
  if (valueOf(draft, 'signing_key') === undefined)
    absent('signing_key_path', resolve(draft.baseDir, `${serverName}.signing.key`));
  silent('media_store_path', resolve(draft.baseDir, 'media_store'));
  absent('macaroon_secret_key', valueOf(draft, 'registration_shared_secret') ?? secretOfSigningKey(draft));
  absent('email.smtp_port', valueOf(draft, 'email.force_tls') ? 465 : 25);
  silent('cas_config.enabled', valueOf(draft, 'cas_config.server_url') !== undefined);
  absent('worker_name', valueOf(draft, 'worker_app'));
  if (valueOf(draft, 'matrix_authentication_service.enabled')) {
    silent('password_config.enabled', false);
    silent('enable_3pid_changes', false);
  }
  if (valueOf(draft, 'worker_app') === undefined) {
    silent('listeners', [
      {
        port: 8008,
        path: undefined,
        mode: 0o666,
        tag: undefined,
        bind_addresses: ['127.0.0.1'],
        bind_address: undefined,
        type: 'http',
        tls: false,
        x_forwarded: false,
        request_id_header: undefined,
        resources: [{ names: ['client', 'federation'] satisfies (typeof resourceNames)[number][], compress: false }],
        additional_resources: {},
      },
      // What an old name asks for.
      ...(valueOf(draft, 'listeners') ?? []),
    ]);
  }
  silent('pusher_instances', sharesOf(draft, 'start_pushers', 'synapse.app.pusher'));
  silent('federation_sender_instances', sharesOf(draft, 'send_federation', 'synapse.app.federation_sender'));
  oldDuty(draft, 'update_user_directory', 'update_user_directory_from_worker', 'synapse.app.user_dir');
  oldDuty(draft, 'notify_appservices', 'notify_appservices_from_worker', 'synapse.app.appservice');
  oneOfDatabases(draft);
  sqliteFile(draft);

  silent('http_proxy', env['http_proxy'] || env['HTTP_PROXY'] || undefined);
  silent('https_proxy', env['https_proxy'] || env['HTTPS_PROXY'] || undefined);
  const noProxy = env['no_proxy'] || env['NO_PROXY'];
  if (noProxy) {
    silent(
      'no_proxy_hosts',
      noProxy
        .split(',')
        .map((host) => host.trim())
        .filter((host) => host !== ''),
    );
  }
  cacheFactors(draft);
}

/** What follows from the signing key, which every process of the server has; nothing before there is one. */
function secretOfSigningKey(draft: Draft): string | undefined {
  const key = valueOf(draft, 'signing_key') ?? textOf(valueOf(draft, 'signing_key_path'));
  return key === undefined ? undefined : createHash('sha256').update(`macaroon_secret_key ${key.trim()}`).digest('hex');
}

/** A file that is not there, or cannot be read: whoever needs it says so. */
function textOf(file: string | undefined): string | undefined {
  try {
    return file === undefined ? undefined : readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

/** Who has a share of a duty where no list names them. Switched off on the main process: workers of that kind, each by its own settings. */
function sharesOf(draft: Draft, onMain: 'start_pushers' | 'send_federation', app: string): readonly string[] {
  if (valueOf(draft, onMain) !== false) return ['master'];
  const own = valueOf(draft, 'worker_app') === app ? valueOf(draft, 'worker_name') : undefined;
  return own === undefined ? [] : [own];
}

/** Switched off on the main process by its old name: a worker of that kind does it, whatever its name. */
function oldDuty(
  draft: Draft,
  old: 'update_user_directory' | 'notify_appservices',
  now: 'update_user_directory_from_worker' | 'notify_appservices_from_worker',
  app: string,
): void {
  if (valueOf(draft, old) !== false || draft.given.has(now)) return;
  draft.values.set(now, valueOf(draft, 'worker_app') === app ? valueOf(draft, 'worker_name') : app);
}

/** Of `databases` the one with everything in it, or with everything but state, is the database. */
function oneOfDatabases(draft: Draft): void {
  const stores = valueOf(draft, 'databases') ?? {};
  const all = Object.values(stores).filter((one) => one.data_stores.includes('main'));
  const [one] = all;
  if (one === undefined || all.length > 1) return;
  if (one.name === 'sqlite3') {
    const resolved = Object.entries(stores).map(([name, store]) => {
      const file = store.args['database'];
      const isPath = store.name === 'sqlite3' && typeof file === 'string' && file !== '' && file !== ':memory:';
      return [name, isPath ? { ...store, args: { ...store.args, database: resolve(draft.baseDir, file) } } : store];
    });
    draft.values.set('databases', Object.fromEntries(resolved));
    for (const [name, store] of Object.entries(stores)) {
      const isFile = typeof store.args['database'] === 'string' && store.args['database'] !== '';
      if (!store.data_stores.includes('main') && store.data_stores.length > 0 && store.name === 'sqlite3' && !isFile)
        draft.context.error(['databases', name, 'args', 'database'], 'expected the path of the database file');
    }
  }
  draft.values.set('database.name', one.name);
  draft.values.set('database.args', one.args);
  draft.values.set('database.txn_limit', one.txn_limit);
  draft.values.set('database.allow_unsafe_locale', one.allow_unsafe_locale);
}

function sqliteFile(draft: Draft): void {
  const args = valueOf(draft, 'database.args') ?? {};
  if (valueOf(draft, 'database.name') !== 'sqlite3') return;
  const file = args['database'] ?? 'homeserver.db';
  if (typeof file === 'string' && file !== '') {
    draft.values.set('database.args', { ...args, database: file === ':memory:' ? file : resolve(draft.baseDir, file) });
  } else draft.context.error(['database', 'args', 'database'], 'expected the path of the database file');
}

/** `*` and dots do not fit into names of environment variables; the settings leave out the stars, too. */
function cacheFactors(draft: Draft): void {
  const prefix = 'SYNAPSE_CACHE_FACTOR';
  const global = Number(draft.env[prefix]);
  if (draft.env[prefix] && Number.isFinite(global) && global >= 0 && !draft.given.has('caches.global_factor')) {
    draft.values.set('caches.global_factor', global);
  }
  const factors: Record<string, number> = {};
  for (const [name, factor] of Object.entries(valueOf(draft, 'caches.per_cache_factors') ?? {})) {
    factors[name.replaceAll('*', '').toLowerCase()] = factor;
  }
  for (const [name, text] of Object.entries(draft.env)) {
    const factor = Number(text);
    if (name.startsWith(`${prefix}_`) && text && Number.isFinite(factor) && factor >= 0) {
      factors[name.slice(prefix.length + 1).toLowerCase()] = factor;
    }
  }
  draft.values.set('caches.per_cache_factors', factors);
}
