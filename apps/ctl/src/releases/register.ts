/** What a change is about. */
export type ChangeKind =
  'setting' | 'endpoint' | 'behaviour' | 'module' | 'workers' | 'database' | 'template' | 'metrics' | 'platform';

/** By what in a settings file one sees that a change concerns a server. */
export interface Condition {
  /** Settings, with dots between the levels. */
  readonly settings: readonly string[];
  /** What has to be there: one of them (unless told), none of them, or one with a value for which the test holds. */
  readonly when?: 'given' | 'missing' | ((value: unknown) => boolean);
}

/** A look into the database that shows whether there is something to do. */
export interface DatabaseLook {
  /** Without these tables there is nothing to look at. */
  readonly tables: readonly string[];
  /** Answers with one number, `found`: how many there are to do something about. Absent for a database that needs no look. */
  readonly sql: { readonly postgres?: string; readonly sqlite?: string };
}

/** One thing that is different from a release on. */
export interface Change {
  readonly kind: ChangeKind;
  /** Name of a setting, path of an endpoint, name of a callback, a table, a program. */
  readonly about: string;
  /** What is different. */
  readonly what: string;
  /** What to do; nothing when there is nothing. */
  readonly remedy?: string;
  /** How it is here, where that differs from the servers of this family. */
  readonly here?: string;
  /** Whom it concerns; everybody unless told. */
  readonly concerns?: Condition;
  /** Whether something is left to do, as the database shows; `rookery doctor` looks. */
  readonly look?: DatabaseLook;
}

/** A release with what it changes. */
export interface Release {
  /** `1.62`; our own are called `rookery-0.1.0`. */
  readonly version: string;
  readonly changes: readonly Change[];
  /** Schema version, and the oldest one whose programs can serve its database; as far as known. */
  readonly schema?: { readonly version: number; readonly servedFrom: number };
}

type More = Pick<Change, 'remedy' | 'here' | 'concerns' | 'look'>;

/** A change, written short. */
export const change = (kind: ChangeKind, about: string, what: string, more: More = {}): Change => ({
  kind,
  about,
  what,
  ...more,
});

/** Concerns servers whose settings have one of these. */
export const given = (...settings: readonly string[]): Pick<Change, 'concerns'> => ({ concerns: { settings } });

/** Concerns servers whose settings have none of these: what changes is the value that is meant then. */
export const missing = (...settings: readonly string[]): Pick<Change, 'concerns'> => ({
  concerns: { settings, when: 'missing' },
});

/** Concerns servers on which a setting has such a value. */
export const holds = (setting: string, test: (value: unknown) => boolean): Pick<Change, 'concerns'> => ({
  concerns: { settings: [setting], when: test },
});

/** A look with a statement that both databases understand. */
export const look = (tables: readonly string[], sql: string): Pick<Change, 'look'> => ({
  look: { tables, sql: { postgres: sql, sqlite: sql } },
});

/** Tests a value that switches something on. */
export const isTrue = (value: unknown): boolean => value === true;
/** What is said of changes of what others are built with. */
export const node = { here: 'Rookery runs on Node.js.' };
export const rust = { here: 'Rookery is built without Rust.' };
export const newer = { here: 'Rookery says at the start when the database is too old.' };
export const postgres = holds('database.name', (name) => typeof name === 'string' && !name.startsWith('sqlite'));
export const sqlite = holds('database.name', (name) => typeof name === 'string' && name.startsWith('sqlite'));
export const appservices = given('app_service_config_files');
export const modules = given('modules', 'spam_checker', 'third_party_event_rules');
export const workers = given('instance_map', 'worker_app', 'redis', 'stream_writers');
export const ownTemplates = given(
  'templates.custom_template_directory',
  'email.template_dir',
  'sso.template_dir',
  'account_validity.template_dir',
);
export const signOn = given('oidc_providers', 'oidc_config', 'saml2_config', 'cas_config');
export const mail = given('email');
export const listenersWith = (
  test: (listener: Readonly<Record<string, unknown>>) => boolean,
): Pick<Change, 'concerns'> =>
  holds(
    'listeners',
    (value) =>
      Array.isArray(value) &&
      value.some((one) => typeof one === 'object' && one !== null && test(one as Record<string, unknown>)),
  );
