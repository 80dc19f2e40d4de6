import { Injectable } from '@nestjs/common';
import type { WrittenList } from '@rookery/http';
import { isJsonObject, type JsonObject, parseSyncFilter } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { EventSerializer, EventStore, MembershipReader } from '@rookery/rooms';
import { formatSyncToken, parseSyncToken, type SyncToken } from '../request/sync-token.js';
import { type SyncRequest, SyncService } from '../sync.service.js';
import { RoomNews } from './room-news.js';

/** What clients used before `/sync`: the same answers in an older shape. */
@Injectable()
export class LegacySyncService {
  constructor(
    private readonly sync: SyncService,
    private readonly news: RoomNews,
    private readonly serializer: EventSerializer,
    private readonly memberships: MembershipReader,
    private readonly events: EventStore,
    private readonly clock: Clock,
  ) {}

  /**
   * Everything of a user: rooms with their state and last events.
   * @param options.limit events of each room
   * @param options.archived rooms that the user has left come too
   * @spec client-server-api#get_matrixclientv3initialsync
   */
  async initialSync(
    requester: Requester,
    options: { readonly limit: number; readonly archived: boolean },
    signal: AbortSignal,
  ): Promise<JsonObject> {
    const filter = { room: { timeline: { limit: options.limit }, include_leave: options.archived } };
    const request = { ...syncRequest(requester, filter), useStateAfter: true, stateNamesRoom: true };
    const answer = await this.sync.sync(request, signal);
    const rooms = sectionsOf(answer);
    const invites = await this.#invites(requester, Object.keys(rooms['invite'] ?? {}));
    const bans = await this.#bans(requester, Object.keys(rooms['leave'] ?? {}));
    const present: JsonObject[] = [];
    for (const section of ['join', 'leave'] as const) {
      for (const [roomId, room] of Object.entries(rooms[section] ?? {})) {
        const timeline = isJsonObject(room['timeline']) ? room['timeline'] : {};
        present.push({
          room_id: roomId,
          membership: bans.has(roomId) ? 'ban' : section,
          messages: {
            start: timeline['prev_batch'] ?? '',
            end: answer['next_batch'] ?? '',
            chunk: inRoom(roomId, timeline),
          },
          state: (room['state_after'] as { readonly events: readonly JsonObject[] | WrittenList }).events,
          account_data: eventsIn(room['account_data']),
        });
      }
    }
    return {
      end: answer['next_batch'] ?? '',
      rooms: [...present, ...invites],
      presence: eventsIn(answer['presence']),
      receipts: Object.entries(rooms['join'] ?? {}).flatMap(([roomId, room]) =>
        inRoom(roomId, room['ephemeral']).filter((event) => event['type'] === 'm.receipt'),
      ),
      account_data: eventsIn(answer['account_data']),
    };
  }

  /**
   * Events of a user's rooms since a token, the oldest first and a page at a time, and beside them who is there, types and has read what, and
   * account data; waits until there are some, or the time is over.
   * @throws MatrixError 400 `M_INVALID_PARAM` for a token that is not ours
   * @spec client-server-api#get_matrixclientv3events
   */
  async since(
    requester: Requester,
    from: string | undefined,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<JsonObject> {
    const since = from === undefined ? this.sync.currentToken() : parseSyncToken(from);
    const deadlineMs = this.clock.monotonicMs() + timeoutMs;
    for (let at = since; ;) {
      const leftMs = Math.max(0, deadlineMs - this.clock.monotonicMs());
      const { end, chunk } = await this.#news(requester, at, leftMs, signal);
      // What else a sync tells of, such as device lists, is not for these endpoints: the wait goes on behind it.
      const isOver = chunk.length > 0 || leftMs === 0 || signal.aborted || formatSyncToken(end) === formatSyncToken(at);
      if (isOver) return { start: formatSyncToken(since), end: formatSyncToken(end), chunk };
      at = end;
    }
  }

  async #news(
    requester: Requester,
    since: SyncToken,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<{ readonly end: SyncToken; readonly chunk: JsonObject[] }> {
    const { token } = await this.sync.placed(since, signal);
    // It says in which rooms something came. Not what: of a room of which it leaves something out, nobody could be told here.
    const answer = await this.sync.sync({ ...syncRequest(requester, {}), since, timeoutMs }, signal);
    const next = parseSyncToken(String(answer['next_batch']));
    const rooms = sectionsOf(answer);
    const page = await this.news.page(
      requester,
      [...Object.keys(rooms['join'] ?? {}), ...Object.keys(rooms['leave'] ?? {})],
      token.events,
      next.events,
    );
    const invites = await this.#invites(requester, Object.keys(rooms['invite'] ?? {}), page.upTo);
    const beside = Object.values(rooms).flatMap((some) =>
      Object.entries(some).flatMap(([roomId, room]) =>
        [room['ephemeral'], room['account_data']].flatMap((part) => inRoom(roomId, part)),
      ),
    );
    return {
      end: { ...next, events: page.upTo },
      chunk: [
        ...page.chunk,
        ...invites.map(({ invite }) => invite as JsonObject),
        ...beside,
        ...eventsIn(answer['presence']),
        ...eventsIn(answer['account_data']),
      ],
    };
  }

  /** Of rooms that are behind a user those that it is banned from. */
  async #bans({ userId }: Requester, roomIds: readonly string[]): Promise<ReadonlySet<string>> {
    const memberships = roomIds.length > 0 ? [...(await this.memberships.inRooms(userId, roomIds))] : [];
    return new Set(memberships.flatMap(([roomId, { membership }]) => (membership === 'ban' ? [roomId] : [])));
  }

  /** @param upTo those of later are told later */
  async #invites(requester: Requester, roomIds: readonly string[], upTo = Infinity): Promise<JsonObject[]> {
    if (roomIds.length === 0) return [];
    const wanted = new Set(roomIds);
    const invited = await this.memberships.roomsOf(requester.userId, ['invite']);
    const events = await this.events.inOrder(
      invited
        .filter(({ roomId, streamOrdering }) => wanted.has(roomId) && streamOrdering <= upTo)
        .map(({ eventId }) => eventId),
    );
    const written = await this.serializer.serializeState(requester, events);
    return written.map((event) => ({
      room_id: event.room_id ?? '',
      membership: 'invite',
      invite: event as unknown as JsonObject,
    }));
  }
}

/** No device: what is given out once, to-device messages, is not for these endpoints. */
function syncRequest(requester: Requester, filter: JsonObject): SyncRequest {
  return {
    userId: requester.userId,
    deviceId: undefined,
    isGuest: requester.isGuest,
    since: undefined,
    filter: parseSyncFilter(filter),
    fullState: false,
    useStateAfter: false,
    setPresence: 'offline',
    timeoutMs: 0,
  };
}

type Sections = Record<string, Record<string, JsonObject>>;

const sectionsOf = (answer: JsonObject): Sections =>
  isJsonObject(answer['rooms']) ? (answer['rooms'] as Sections) : {};

function eventsIn(part: unknown): JsonObject[] {
  const events = isJsonObject(part) ? part['events'] : undefined;
  return Array.isArray(events) ? (events as JsonObject[]) : [];
}

const inRoom = (roomId: string, part: unknown): JsonObject[] =>
  eventsIn(part).map((event) => ({ ...event, room_id: roomId }));
