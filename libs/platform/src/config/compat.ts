import { resolve } from 'node:path';
import { type Draft, put, valueOf } from './draft.js';
import { isSection } from './kinds.js';
import type { Listener, ModuleEntry } from './settings/shapes.js';
import type { SettingName, SettingValue } from './table.js';

/** Writes what old names say under the present ones, so that nobody else has to know the old. */
export function applyOldForms(draft: Draft): void {
  renamed(draft, 'use_presence', 'presence.enabled');
  renamed(draft, 'caches.expiry_time', 'caches.cache_entry_ttl');
  renamed(draft, 'email.riot_base_url', 'email.client_base_url');
  renamed(draft, 'allow_underscore_prefixed_registration', 'allow_underscore_prefixed_localpart');
  renamed(draft, 'federation_rc_window_size', 'rc_federation.window_size');
  renamed(draft, 'federation_rc_sleep_limit', 'rc_federation.sleep_limit');
  renamed(draft, 'federation_rc_sleep_delay', 'rc_federation.sleep_delay');
  renamed(draft, 'federation_rc_reject_limit', 'rc_federation.reject_limit');
  renamed(draft, 'federation_rc_concurrent', 'rc_federation.concurrent');
  inverted(draft, 'disable_registration', 'enable_registration');
  inverted(draft, 'push.redact_content', 'push.include_content');
  inverted(draft, 'email.redact_content', 'push.include_content');
  messageRate(draft);
  templateFolder(draft);
  oldModules(draft);
  modulesByPath(draft);
  oldListeners(draft);
  backupMediaStore(draft);
  oldProviders(draft);
  keyServers(draft);
  inviteState(draft);
  samlMapping(draft);
  databasePath(draft);
  mainProcess(draft);
}

/** Puts sections in the place of what stood there before they were sections. */
export function writtenOut(raw: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const types = raw['room_prejoin_state'];
  // As `room_invite_state_types`, whose place it took: the whole list.
  return Array.isArray(types)
    ? { ...raw, room_prejoin_state: { disable_default_event_types: true, additional_event_types: types } }
    : raw;
}

/** The old name's value, where the new name is silent. */
function renamed<O extends SettingName, N extends SettingName>(draft: Draft, old: O, now: N): void {
  const value = valueOf(draft, old) as SettingValue<N> | undefined;
  if (value !== undefined && !draft.given.has(now)) put(draft, now, value, old);
}

function inverted(
  draft: Draft,
  old: 'disable_registration' | 'push.redact_content' | 'email.redact_content',
  now: 'enable_registration' | 'push.include_content',
): void {
  const value = valueOf(draft, old);
  if (value === undefined) return;
  if (draft.given.has(now) && valueOf(draft, now) === value) draft.context.error(old.split('.'), `contradicts ${now}`);
  else put(draft, now, !value, old);
}

function messageRate(draft: Draft): void {
  const perSecond = valueOf(draft, 'rc_messages_per_second');
  const burst = valueOf(draft, 'rc_message_burst_count');
  if ((perSecond === undefined && burst === undefined) || draft.given.has('rc_message')) return;
  const before = valueOf(draft, 'rc_message');
  put(
    draft,
    'rc_message',
    { per_second: perSecond ?? before.per_second, burst_count: burst ?? before.burst_count },
    'rc_messages_per_second',
  );
}

function templateFolder(draft: Draft): void {
  for (const old of ['email.template_dir', 'sso.template_dir', 'account_validity.template_dir'] as const) {
    const folder = valueOf(draft, old);
    // A further folder is looked into after the first one.
    if (folder !== undefined && valueOf(draft, 'templates.custom_template_directory') === undefined)
      put(draft, 'templates.custom_template_directory', folder, old);
  }
}

/** Modules of the past keep their order in front of those listed, as their checks ran first. */
function oldModules(draft: Draft): void {
  const entry = (one: { readonly module: string; readonly config: unknown }): ModuleEntry => ({
    on_error: 'deny',
    time_limit: undefined,
    allow_federation_to: [],
    isolate: undefined,
    shadow: false,
    memory_limit: undefined,
    ...one,
  });
  const old = [
    ...(valueOf(draft, 'password_providers') ?? []),
    ...(valueOf(draft, 'spam_checker') ?? []),
    ...[valueOf(draft, 'third_party_event_rules')].filter((one) => one !== undefined),
    ...[valueOf(draft, 'presence.presence_router')].filter((one) => one !== undefined),
  ];
  if (old.length > 0) put(draft, 'modules', [...old.map(entry), ...(valueOf(draft, 'modules') ?? [])], 'spam_checker');
}

/** A path says nothing to a module, which registers its own: what is named there alone is not loaded, and answers nobody. */
function modulesByPath(draft: Draft): void {
  const listed = new Set((valueOf(draft, 'modules') ?? []).map(({ module }) => module));
  for (const name of ['listeners', 'worker_listeners'] as const) {
    // What is wrong with a listener is said of that.
    for (const [index, listener] of (valueOf(draft, name) ?? []).entries()) {
      for (const [path, { module }] of Object.entries(listener?.additional_resources ?? {})) {
        if (listed.has(module)) continue;
        draft.context.warn(
          [name, index, 'additional_resources', path],
          `opens the path only: list ${module} under modules, where it registers the path itself`,
        );
      }
    }
  }
}

function oldListeners(draft: Draft): void {
  const port = valueOf(draft, 'metrics_port');
  let listeners: readonly Listener[] = valueOf(draft, 'listeners') ?? [];
  if (port !== undefined) {
    const metrics: Listener = {
      port,
      path: undefined,
      mode: 0o666,
      tag: undefined,
      bind_addresses: [valueOf(draft, 'metrics_bind_host') ?? '127.0.0.1'],
      bind_address: undefined,
      type: 'metrics',
      tls: false,
      x_forwarded: false,
      request_id_header: undefined,
      resources: [],
      additional_resources: {},
    };
    listeners = [...listeners, metrics];
  }
  if (valueOf(draft, 'no_tls')) listeners = listeners.filter((one) => !one?.tls);
  draft.values.set('listeners', listeners);
}

function backupMediaStore(draft: Draft): void {
  const directory = valueOf(draft, 'backup_media_store_path');
  if (directory === undefined) return;
  if (draft.given.has('media_storage_providers')) {
    draft.context.error(
      ['backup_media_store_path'],
      'set either media_storage_providers or backup_media_store_path, not both',
    );
    return;
  }
  put(
    draft,
    'media_storage_providers',
    [
      {
        module: 'file_system',
        store_local: true,
        store_remote: true,
        store_synchronous: valueOf(draft, 'synchronous_backup_media_store') ?? false,
        config: { directory },
      },
    ],
    'backup_media_store_path',
  );
}

function oldProviders(draft: Draft): void {
  const old = valueOf(draft, 'oidc_config');
  if (!old?.enabled) return;
  const { enabled: _enabled, ...provider } = old;
  put(draft, 'oidc_providers', [...(valueOf(draft, 'oidc_providers') ?? []), provider], 'oidc_config');
}

/** `perspectives: { servers: { NAME: { verify_keys: { ID: { key } } } } }` */
function keyServers(draft: Draft): void {
  const servers = valueOf(draft, 'perspectives')?.['servers'];
  if (!isSection(servers) || draft.given.has('trusted_key_servers')) return;
  const keysOf = (server: unknown): Record<string, string> => {
    const keys = isSection(server) && isSection(server['verify_keys']) ? server['verify_keys'] : {};
    return Object.fromEntries(
      Object.entries(keys).flatMap(([id, one]) =>
        isSection(one) && typeof one['key'] === 'string' ? [[id, one['key']]] : [],
      ),
    );
  };
  put(
    draft,
    'trusted_key_servers',
    Object.entries(servers).map(([server_name, server]) => ({
      server_name,
      verify_keys: keysOf(server),
      accept_keys_insecurely: false,
    })),
    'perspectives',
  );
}

function inviteState(draft: Draft): void {
  const types = valueOf(draft, 'room_invite_state_types');
  if (types === undefined || draft.given.has('room_prejoin_state')) return;
  put(draft, 'room_prejoin_state.disable_default_event_types', true, 'room_invite_state_types');
  put(draft, 'room_prejoin_state.additional_event_types', types, 'room_invite_state_types');
}

function samlMapping(draft: Draft): void {
  const source = valueOf(draft, 'saml2_config.mxid_source_attribute');
  const mapping = valueOf(draft, 'saml2_config.mxid_mapping');
  if (source === undefined && mapping === undefined) return;
  const present = valueOf(draft, 'saml2_config.user_mapping_provider');
  const config = isSection(present?.config) ? present.config : {};
  put(
    draft,
    'saml2_config.user_mapping_provider',
    {
      module: present?.module,
      config: {
        ...(source === undefined ? {} : { mxid_source_attribute: source }),
        ...(mapping === undefined ? {} : { mxid_mapping: mapping }),
        ...config,
      },
    },
    'saml2_config.mxid_source_attribute',
  );
}

function databasePath(draft: Draft): void {
  const file = valueOf(draft, 'database_path');
  const args = valueOf(draft, 'database.args') ?? {};
  if (file !== undefined && args['database'] === undefined)
    put(draft, 'database.args', { ...args, database: resolve(draft.baseDir, file) }, 'database_path');
}

/** The main process may name its kind, too: it is then the same as one that does not. */
function mainProcess(draft: Draft): void {
  if (valueOf(draft, 'worker_app') !== 'synapse.app.homeserver') return;
  draft.values.set('worker_app', undefined);
  draft.given.delete('worker_app');
}
