import type { RoomVersionRules } from './room-version-rules.js';

type ContentKeys = Readonly<Record<string, true | readonly string[]>>;

const content = (base: ReadonlyMap<string, true | readonly string[]>, changes: ContentKeys) =>
  new Map([...base, ...Object.entries(changes)]);

const without = (base: ReadonlyMap<string, true | readonly string[]>, type: string) =>
  new Map([...base].filter(([key]) => key !== type));

const next = (
  previous: RoomVersionRules,
  version: string,
  changes: Partial<Omit<RoomVersionRules, 'version'>> = {},
): RoomVersionRules => Object.freeze({ ...previous, ...changes, version });

const levels = ['ban', 'events', 'events_default', 'kick', 'redact', 'state_default', 'users', 'users_default'];

// In canonical order, so that what redaction keeps needs no sorting.
const topLevelKeys1 = [
  ...[
    'auth_events',
    'content',
    'depth',
    'event_id',
    'hashes',
    'membership',
    'origin',
    'origin_server_ts',
    'prev_events',
  ],
  ...['prev_state', 'room_id', 'sender', 'signatures', 'state_key', 'type'],
];

/** @spec rooms/v1 */
const v1: RoomVersionRules = Object.freeze({
  version: '1',
  eventFormat: 'v1',
  roomIdFormat: 'domain',
  stateResolution: 'v1',
  strictCanonicalJson: false,
  strictByteLimits: false,
  powerLevelValues: 'intStringFloat',
  joinRules: { knock: false, restricted: false, knockRestricted: false },
  aliasesAuthRule: true,
  redactionAuthRule: true,
  notificationLevelsChecked: false,
  keyValidityEnforced: false,
  redactsInContent: false,
  creatorIsSender: false,
  privilegedCreators: false,
  createEventImplied: false,
  redaction: {
    topLevelKeys: new Set(topLevelKeys1),
    contentKeys: new Map<string, true | readonly string[]>([
      ['m.room.member', ['membership']],
      ['m.room.create', ['creator']],
      ['m.room.join_rules', ['join_rule']],
      ['m.room.power_levels', levels],
      ['m.room.history_visibility', ['history_visibility']],
      ['m.room.aliases', ['aliases']],
    ]),
  },
  // The format allows 2^63 - 1; this is the largest number below it that a binary64 holds.
  maxDepth: 2 ** 63 - 1024,
});

/** @spec rooms/v2 */
const v2 = next(v1, '2', { stateResolution: 'v2' });

/** @spec rooms/v3 */
const v3 = next(v2, '3', { eventFormat: 'v3', redactionAuthRule: false });

/** @spec rooms/v4 */
const v4 = next(v3, '4', { eventFormat: 'v4' });

/** @spec rooms/v5 */
const v5 = next(v4, '5', { keyValidityEnforced: true });

/** @spec rooms/v6 */
const v6 = next(v5, '6', {
  strictCanonicalJson: true,
  powerLevelValues: 'intString',
  aliasesAuthRule: false,
  notificationLevelsChecked: true,
  redaction: { ...v5.redaction, contentKeys: without(v5.redaction.contentKeys, 'm.room.aliases') },
  maxDepth: Number.MAX_SAFE_INTEGER,
});

/** @spec rooms/v7 */
const v7 = next(v6, '7', { joinRules: { ...v6.joinRules, knock: true } });

/** @spec rooms/v8 */
const v8 = next(v7, '8', {
  joinRules: { ...v7.joinRules, restricted: true },
  redaction: {
    ...v7.redaction,
    contentKeys: content(v7.redaction.contentKeys, { 'm.room.join_rules': ['join_rule', 'allow'] }),
  },
});

/** @spec rooms/v9 */
const v9 = next(v8, '9', {
  redaction: {
    ...v8.redaction,
    contentKeys: content(v8.redaction.contentKeys, {
      'm.room.member': ['membership', 'join_authorised_via_users_server'],
    }),
  },
});

/** @spec rooms/v10 */
const v10 = next(v9, '10', {
  powerLevelValues: 'int',
  joinRules: { ...v9.joinRules, knockRestricted: true },
});

/** @spec rooms/v11 */
const v11 = next(v10, '11', {
  strictByteLimits: true,
  redactsInContent: true,
  creatorIsSender: true,
  redaction: {
    topLevelKeys: new Set(topLevelKeys1.filter((key) => !['prev_state', 'origin', 'membership'].includes(key))),
    contentKeys: content(v10.redaction.contentKeys, {
      'm.room.member': ['membership', 'join_authorised_via_users_server', 'third_party_invite.signed'],
      'm.room.create': true,
      'm.room.power_levels': [...levels, 'invite'],
      'm.room.redaction': ['redacts'],
    }),
  },
});

/** @spec rooms/v12 */
const v12 = next(v11, '12', {
  roomIdFormat: 'createEventHash',
  stateResolution: 'v2.1',
  privilegedCreators: true,
  createEventImplied: true,
});

const byVersion: ReadonlyMap<string, RoomVersionRules> = new Map(
  [v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12].map((rules) => [rules.version, rules]),
);

/** The identifiers of all room versions that this library knows, oldest first; all are stable. */
export const roomVersions: readonly string[] = [...byVersion.keys()];

/** The version of new rooms unless somebody asks for another. @spec rooms#complete-list-of-room-versions */
export const defaultRoomVersion = '12';

/**
 * The rules of a room version.
 * @returns `undefined` for a version that this library does not know, and for what is no version at all
 * @spec rooms#complete-list-of-room-versions
 */
export function roomVersionRules(version: unknown): RoomVersionRules | undefined {
  return typeof version === 'string' ? byVersion.get(version) : undefined;
}
