import type { Kind, KindValue } from './kinds.js';

/** One row of the table of settings. */
export interface Setting<T = unknown> {
  readonly kind: Kind<T>;
  /** What holds when the file says nothing. `undefined` when that is "not set" or depends on others (see `rule`). */
  readonly default: T | undefined;
  /** One line for the operator: what it does, the unit where there is one. */
  readonly doc: string;
  /** Whether `null` in the file means "none" (otherwise it means the default). */
  readonly nullable: boolean;
  /** The server does not start without it. */
  readonly required?: boolean;
  /** Release of the compatible server that brought it. */
  readonly since?: string;
  /** Still read, but warned about: what to write instead. */
  readonly deprecated?: string;
  /** No longer there: what to do instead. `refuse`: the server does not start with it; otherwise it is only warned about. */
  readonly removed?: { readonly since: string; readonly refuse: boolean; readonly instead: string };
  /** Understood, but nothing that this server could do: why. */
  readonly meaningless?: string;
  /** How it depends on other settings, for the documentation. */
  readonly rule?: string;
  /** Read again on SIGHUP. */
  readonly reload?: boolean;
  /** Never printed. */
  readonly secret?: boolean;
  /** The setting whose value this one's file holds. */
  readonly fileOf?: string;
  /** Phantom: what the setting reads into. */
  readonly type?: T;
}

type More = Partial<Omit<Setting, 'kind' | 'default' | 'doc' | 'nullable' | 'type'>>;

/** A setting with a default. */
export const setting = <T>(kind: Kind<T>, value: NoInfer<T>, doc: string, more: More = {}): Setting<T> => ({
  ...more,
  kind,
  default: value,
  doc,
  nullable: false,
});

/** A setting that may be unset. `null` unsets it, which differs from leaving it out when `default` is given. */
export const optional = <K extends Kind<unknown>>(
  kind: K,
  doc: string,
  more: More & { readonly default?: NoInfer<KindValue<K>> } = {},
): Setting<KindValue<K> | undefined> => ({
  ...more,
  kind: kind as Kind<KindValue<K>>,
  default: more.default,
  doc,
  nullable: true,
});

/** A setting that the file must have. */
export const required = <T>(kind: Kind<T>, doc: string, more: More = {}): Setting<T> => ({
  ...more,
  kind,
  default: undefined,
  doc,
  nullable: false,
  required: true,
});

/** A setting that names a file with the value of the setting `of`, which then reads as if it stood in the settings. */
export const secretFile = (kind: Kind<string>, of: string, more: More = {}): Setting<string | undefined> => ({
  ...more,
  kind,
  default: undefined,
  doc: `File that holds \`${of}\`; not together with it.`,
  nullable: true,
  fileOf: of,
});

/** A setting of the past that the server refuses to start with. */
export const refused = (kind: Kind<unknown>, since: string, instead: string): Setting<undefined> =>
  gone(kind, since, instead, true);

/** A setting of the past that is warned about and otherwise ignored. */
export const ignored = (kind: Kind<unknown>, since: string, instead: string): Setting<undefined> =>
  gone(kind, since, instead, false);

const gone = (kind: Kind<unknown>, since: string, instead: string, refuse: boolean): Setting<undefined> => ({
  kind: kind as Kind<undefined>,
  default: undefined,
  doc: `Removed. ${instead}`,
  nullable: true,
  removed: { since, refuse, instead },
});
