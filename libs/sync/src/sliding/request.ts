import { json } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { RequiredState, type StatePair } from './required-state.js';

/** What a client may name at most; more is refused. */
export const limits = {
  lists: 100,
  listNameBytes: 64,
  rangesPerList: 100,
  subscriptions: 1_000,
  requiredState: 500,
  requiredStateInAll: 2_000,
  timelineLimit: 1_000,
  filterValues: 100,
  nameBytes: 255,
  searchBytes: 1_000,
  toDevice: 1_000,
  threads: 1_000,
  sticky: 1_000,
} as const;

/** What is sent of a room. */
export interface RoomConfig {
  readonly timelineLimit: number;
  readonly requiredState: RequiredState;
}

/** Conditions that a room must fulfil to be in a list; all of them. */
export interface ListFilters {
  readonly isDm: boolean | undefined;
  readonly isEncrypted: boolean | undefined;
  readonly isInvite: boolean | undefined;
  /** Rooms that one of these spaces names as a child. */
  readonly spaces: readonly string[] | undefined;
  /** `undefined` among the values stands for ordinary rooms. */
  readonly roomTypes: ReadonlySet<string | undefined> | undefined;
  readonly notRoomTypes: ReadonlySet<string | undefined> | undefined;
  /** Part of the name, in any case. */
  readonly nameLike: string | undefined;
  readonly tags: readonly string[] | undefined;
  readonly notTags: readonly string[] | undefined;
}

/** A list of rooms, a window of which the client looks at. */
export interface SlidingList {
  /** First and last place, inclusive; absent for all rooms. */
  readonly ranges: readonly (readonly [start: number, end: number])[] | undefined;
  readonly filters: ListFilters | undefined;
  readonly config: RoomConfig;
}

/** An extension that is about rooms: those of some lists, and some rooms of those subscribed to. `undefined` means all. */
export interface RoomExtension {
  readonly lists: ReadonlySet<string> | undefined;
  readonly rooms: ReadonlySet<string> | undefined;
}

/** The extensions that are switched on. */
export interface SlidingExtensions {
  readonly toDevice: { readonly limit: number; readonly since: number | undefined } | undefined;
  readonly e2ee: boolean;
  readonly accountData: RoomExtension | undefined;
  readonly receipts: RoomExtension | undefined;
  readonly typing: RoomExtension | undefined;
  /** MSC4308 */
  readonly threads: { readonly limit: number } | undefined;
  /** MSC4480 */
  readonly sticky: { readonly limit: number; readonly since: number | undefined } | undefined;
  /** MSC4262; without `fields` all of them. */
  readonly profiles: { readonly fields: ReadonlySet<string> | undefined } | undefined;
}

/** What a client asks for (MSC4186). */
export interface SlidingRequest {
  /** Names one of several connections of a device. */
  readonly connId: string;
  readonly lists: ReadonlyMap<string, SlidingList>;
  readonly subscriptions: ReadonlyMap<string, RoomConfig>;
  readonly extensions: SlidingExtensions;
}

/** Texts go to the database, which may not take NUL. */
const pattern = '^[^\\u0000]*$';
const name = json.string({ maxLength: limits.nameBytes, pattern });
const names = json.nullable(json.array(name, { maxItems: limits.filterValues }));
const flag = json.nullable(json.boolean());
const types = json.nullable(
  json.array(json.nullable(json.string({ maxLength: limits.nameBytes, pattern })), {
    maxItems: limits.filterValues,
  }),
);
const roomConfig = {
  required_state: json.optional(
    'Which state of the room is sent: pairs of type and state key; `*` for any, `$LAZY` and `$ME` as the state key of members.',
    json.array(json.array(name, { minItems: 2, maxItems: 2 }), { maxItems: limits.requiredState }),
  ),
  timeline_limit: json.required(
    'How many events of the timeline at most.',
    json.integer({ minimum: 0, maximum: limits.timelineLimit }),
  ),
};
const enabled = json.optional('Whether the extension is switched on.', flag);
const roomExtension = json.object({
  enabled,
  lists: json.optional(
    'Rooms of these lists; all lists unless given.',
    json.nullable(json.array(name, { maxItems: limits.lists })),
  ),
  rooms: json.optional(
    'Of the rooms subscribed to these; all unless given.',
    json.nullable(json.array(name, { maxItems: limits.subscriptions })),
  ),
});

const limit = json.optional('How many at most.', json.nullable(json.integer({ minimum: 0 })));
const since = json.optional(
  'Where those begin that the client does not have: the `next_batch` of the answer before.',
  json.nullable(json.string({ pattern: '^\\d{1,16}$' })),
);

/** Names of extensions that are not stable yet. */
export const threadsExtension = 'io.element.msc4308.thread_subscriptions';
export const stickyExtension = 'org.matrix.msc4354.sticky_events';
export const profilesExtension = 'org.matrix.msc4262.profiles';

/** The shape and the limits of the body. */
export const slidingRequestSchema = json.object({
  conn_id: json.optional(
    'Tells several connections of a device apart.',
    json.nullable(json.string({ maxLength: limits.nameBytes, pattern })),
  ),
  lists: json.optional(
    'Lists of rooms that the client looks at, by the name that it gives them.',
    json.nullable(
      json.record(
        json.object({
          ...roomConfig,
          ranges: json.optional(
            'First and last place of each window; all rooms unless given.',
            json.nullable(
              json.array(
                json.array(json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), {
                  minItems: 2,
                  maxItems: 2,
                }),
                { maxItems: limits.rangesPerList },
              ),
            ),
          ),
          slow_get_all_rooms: json.optional('Whether all rooms are sent, whatever the windows.', flag),
          filters: json.optional(
            'Which rooms are in the list: those that fulfil all of this.',
            json.nullable(
              json.object({
                is_dm: json.optional('Whether it is a direct chat.', flag),
                is_encrypted: json.optional('Whether it is encrypted.', flag),
                is_invite: json.optional('Whether the user is invited.', flag),
                spaces: json.optional('Spaces one of which has the room.', names),
                room_types: json.optional('Types one of which the room has; `null` for ordinary rooms.', types),
                not_room_types: json.optional('Types none of which the room has; `null` for ordinary rooms.', types),
                room_name_like: json.optional(
                  'What the name has in it, in any case.',
                  json.nullable(json.string({ maxLength: limits.searchBytes })),
                ),
                tags: json.optional('Tags one of which the room has.', names),
                not_tags: json.optional('Tags none of which the room has.', names),
              }),
            ),
          ),
        }),
        { maxProperties: limits.lists },
      ),
    ),
  ),
  room_subscriptions: json.optional(
    'Rooms that are sent whatever the lists, by id.',
    json.nullable(json.record(json.object(roomConfig), { maxProperties: limits.subscriptions })),
  ),
  extensions: json.optional(
    'What is sent beside rooms.',
    json.nullable(
      json.object({
        to_device: json.optional(
          'Messages to the device.',
          json.object({
            enabled,
            limit,
            since,
          }),
        ),
        e2ee: json.optional('Counts of one-time keys, and whose devices have changed.', json.object({ enabled })),
        account_data: json.optional('Account data.', roomExtension),
        receipts: json.optional('Receipts.', roomExtension),
        typing: json.optional('Who is typing.', roomExtension),
        [threadsExtension]: json.optional('Subscriptions to threads (MSC4308).', json.object({ enabled, limit })),
        [stickyExtension]: json.optional(
          'Sticky events (MSC4354).',
          json.object({
            enabled,
            limit,
            since,
          }),
        ),
        [profilesExtension]: json.optional(
          'Profiles of users that have changed (MSC4262).',
          json.object({ enabled, fields: json.optional('The fields of profiles; all unless given.', names) }),
        ),
      }),
    ),
  ),
});

/**
 * Reads a body that fits {@link slidingRequestSchema}.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 */
export function parseSlidingRequest(body: JsonObject): SlidingRequest {
  const wanted = new Set<string>();
  for (const { required_state: pairs } of [...valuesOf(body['lists']), ...valuesOf(body['room_subscriptions'])]) {
    for (const pair of Array.isArray(pairs) ? pairs : []) wanted.add(JSON.stringify(pair));
  }
  if (wanted.size > limits.requiredStateInAll) throw MatrixError.invalidParam("Too many entries of 'required_state'");
  const lists = new Map<string, SlidingList>();
  for (const [key, list] of entriesOf(body['lists'])) {
    if (Buffer.byteLength(key) > limits.listNameBytes) {
      throw MatrixError.invalidParam(`The name of a list is longer than ${limits.listNameBytes} bytes`);
    }
    lists.set(key, { ranges: rangesOf(list), filters: filtersOf(list['filters']), config: configOf(list) });
  }
  const subscriptions = new Map(
    entriesOf(body['room_subscriptions']).map(([roomId, room]) => [roomId, configOf(room)]),
  );
  return {
    connId: textOf(body['conn_id']) ?? '',
    lists,
    subscriptions,
    extensions: extensionsOf(isJsonObject(body['extensions']) ? body['extensions'] : {}),
  };
}

function configOf(source: JsonObject): RoomConfig {
  const pairs = (source['required_state'] ?? []) as unknown as readonly StatePair[];
  return { timelineLimit: Number(source['timeline_limit']), requiredState: RequiredState.of(pairs) };
}

function rangesOf(list: JsonObject): SlidingList['ranges'] {
  if (list['slow_get_all_rooms'] === true || !Array.isArray(list['ranges'])) return undefined;
  const ranges = list['ranges'] as unknown as readonly (readonly [number, number])[];
  for (const [start, end] of ranges) {
    if (end < start) throw MatrixError.invalidParam('A range ends before it starts');
  }
  return ranges;
}

function filtersOf(source: unknown): ListFilters | undefined {
  if (!isJsonObject(source)) return undefined;
  return {
    isDm: flagOf(source['is_dm']),
    isEncrypted: flagOf(source['is_encrypted']),
    isInvite: flagOf(source['is_invite']),
    spaces: textsOf(source['spaces']),
    roomTypes: typesOf(source['room_types']),
    notRoomTypes: typesOf(source['not_room_types']),
    nameLike: textOf(source['room_name_like'])?.toLowerCase(),
    tags: textsOf(source['tags']),
    notTags: textsOf(source['not_tags']),
  };
}

function extensionsOf(source: JsonObject): SlidingExtensions {
  const enabled = (key: string): JsonObject | undefined => {
    const value = source[key];
    return isJsonObject(value) && value['enabled'] === true ? value : undefined;
  };
  const rooms = (key: string): RoomExtension | undefined => {
    const value = enabled(key);
    return value && { lists: namesOf(value['lists']), rooms: namesOf(value['rooms']) };
  };
  const toDevice = enabled('to_device');
  const threads = enabled(threadsExtension);
  const sticky = enabled(stickyExtension);
  const profiles = enabled(profilesExtension);
  const limitOf = (extension: JsonObject, most: number): number =>
    Math.min(Math.max(Number(extension['limit'] ?? 100), 1), most);
  const sinceOf = (extension: JsonObject): number | undefined => {
    const since = textOf(extension['since']);
    return since === undefined ? undefined : Number(since);
  };
  return {
    toDevice: toDevice && { limit: limitOf(toDevice, limits.toDevice), since: sinceOf(toDevice) },
    threads: threads && { limit: limitOf(threads, limits.threads) },
    sticky: sticky && { limit: limitOf(sticky, limits.sticky), since: sinceOf(sticky) },
    profiles: profiles && { fields: setOf(textsOf(profiles['fields'])) },
    e2ee: enabled('e2ee') !== undefined,
    accountData: rooms('account_data'),
    receipts: rooms('receipts'),
    typing: rooms('typing'),
  };
}

const entriesOf = (value: unknown): [string, JsonObject][] =>
  isJsonObject(value) ? (Object.entries(value) as [string, JsonObject][]) : [];
const valuesOf = (value: unknown): JsonObject[] => entriesOf(value).map(([, each]) => each);
const flagOf = (value: unknown): boolean | undefined => (typeof value === 'boolean' ? value : undefined);
const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
const textsOf = (value: unknown): readonly string[] | undefined =>
  Array.isArray(value) ? (value as string[]) : undefined;
const typesOf = (value: unknown): ReadonlySet<string | undefined> | undefined =>
  Array.isArray(value) ? new Set(value.map((type) => (typeof type === 'string' ? type : undefined))) : undefined;
const setOf = (list: readonly string[] | undefined): ReadonlySet<string> | undefined => list && new Set(list);
/** Absent, or `*` among them, means all. */
const namesOf = (value: unknown): ReadonlySet<string> | undefined =>
  Array.isArray(value) && !value.includes('*') ? new Set(value as string[]) : undefined;
