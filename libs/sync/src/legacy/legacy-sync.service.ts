import { Injectable } from '@nestjs/common';
import { presenceContent, PresenceService, receiptContent, ReceiptService } from '@rookery/ephemeral';
import { type EventFilter, isJsonObject, type JsonObject, parseSyncFilter } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import {
  EventSerializer,
  EventStore,
  MembershipReader,
  RoomAccess,
  RoomDirectory,
  RoomReadingService,
  TimelineReader,
  VisibilityFilter,
} from '@rookery/rooms';
import { AccountDataService } from '@rookery/users';
import { RoomActivity } from '../caches/room-activity.js';
import { formatSyncToken, parseSyncToken } from '../request/sync-token.js';
import { isKept } from '../sections/account-data.js';
import { type SyncRequest, SyncService } from '../sync.service.js';

/** Events of an answer of `/events`, of each room. */
const eventsPerRoom = 100;

/**
 * What clients used before `/sync`: the same answers in an older shape, and watching a room that anybody may read without
 * joining it.
 */
@Injectable()
export class LegacySyncService {
  // Fifteen parameters: four old answers, two of an account and two of one room, each put together of what others read.
  constructor(
    private readonly sync: SyncService,
    private readonly activity: RoomActivity,
    private readonly access: RoomAccess,
    private readonly timelines: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly memberships: MembershipReader,
    private readonly events: EventStore,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly reading: RoomReadingService,
    private readonly directory: RoomDirectory,
    private readonly accountData: AccountDataService,
    private readonly presence: PresenceService,
    private readonly receipts: ReceiptService,
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
    const answer = await this.sync.sync({ ...syncRequest(requester, filter), useStateAfter: true }, signal);
    const rooms = sectionsOf(answer);
    const invites = await this.#invites(requester, Object.keys(rooms['invite'] ?? {}));
    const present = (['join', 'leave'] as const).flatMap((membership) =>
      Object.entries(rooms[membership] ?? {}).map(([roomId, room]) => {
        const timeline = isJsonObject(room['timeline']) ? room['timeline'] : {};
        return {
          room_id: roomId,
          membership,
          messages: {
            start: timeline['prev_batch'] ?? '',
            end: answer['next_batch'] ?? '',
            chunk: inRoom(roomId, timeline),
          },
          state: inRoom(roomId, room['state_after']),
          account_data: eventsIn(room['account_data']),
        };
      }),
    );
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
   * One room as its reader may read it: state, the last events, and for members who is there and has read what.
   * @param options.limit events
   * @throws MatrixError 403 `M_FORBIDDEN`
   * @spec client-server-api#get_matrixclientv3roomsroomidinitialsync
   */
  async initialSyncOfRoom(
    requester: Requester,
    roomId: string,
    { limit, filter }: { readonly limit: number; readonly filter: EventFilter },
  ): Promise<JsonObject> {
    const { userId } = requester;
    const reading = await this.access.read(requester, roomId);
    const from = await this.reading.endToken(roomId);
    const [page, state, isPublished, own, accountData, beside] = await Promise.all([
      limit > 0 ? this.reading.messages(requester, roomId, { from, direction: 'b', limit, filter }) : { end: from },
      this.reading.allState(requester, roomId),
      this.directory.isPublished(roomId),
      this.memberships.inRoom(userId, roomId),
      this.accountData.forRooms(userId, [roomId]),
      reading.kind === 'joined' ? this.#beside(requester, roomId) : { presence: [], receipts: [] },
    ]);
    const { end: earlier, chunk = [] } = page as { readonly end?: string; readonly chunk?: JsonObject[] };
    return {
      room_id: roomId,
      ...(reading.kind !== 'peeking' && own && { membership: own.membership }),
      messages: { ...(earlier !== undefined && { start: earlier }), end: from, chunk: chunk.toReversed() },
      state: state as unknown as JsonObject[],
      visibility: isPublished ? 'public' : 'private',
      account_data: accountData
        .filter(isKept)
        .map(({ type, content }) => ({ type, content: JSON.parse(content) as JsonObject })),
      ...beside,
    };
  }

  /** Who is there, and has read what, in a room that the user is in. */
  async #beside(
    { userId, isGuest }: Requester,
    roomId: string,
  ): Promise<Record<'presence' | 'receipts', JsonObject[]>> {
    const now = this.sync.currentToken();
    const [states, receipts] = await Promise.all([
      isGuest
        ? []
        : this.presence.changes({
            ...{ userId, joinedRooms: new Set([roomId]), freshRooms: [] },
            ...{ since: undefined, upTo: now.presence },
          }),
      this.receipts.forRooms(userId, [roomId], now.receipts),
    ]);
    const nowMs = this.clock.nowMs();
    return {
      presence: states.map((each) => ({
        ...{ type: 'm.presence', sender: each.userId, content: presenceContent(each, nowMs) },
      })),
      receipts: [...receipts.values()].map((list) => ({
        ...{ type: 'm.receipt', room_id: roomId, content: receiptContent(list) as JsonObject },
      })),
    };
  }

  /**
   * Events of a user's rooms since a token, and beside them who is there, types and has read what, and account data; waits until there are some, or the time is over.
   * @throws MatrixError 400 `M_INVALID_PARAM` for a token that is not ours
   * @spec client-server-api#get_matrixclientv3events
   */
  async news(
    requester: Requester,
    from: string | undefined,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<JsonObject> {
    const since = from === undefined ? this.sync.currentToken() : parseSyncToken(from);
    const filter = { room: { timeline: { limit: eventsPerRoom } } };
    const answer = await this.sync.sync({ ...syncRequest(requester, filter), since, timeoutMs }, signal);
    const ofRooms = Object.values(sectionsOf(answer)).flatMap((rooms) =>
      Object.entries(rooms).flatMap(([roomId, room]) =>
        [room['timeline'], room['ephemeral'], room['account_data']].flatMap((part) => inRoom(roomId, part)),
      ),
    );
    const chunk = [...ofRooms, ...eventsIn(answer['presence']), ...eventsIn(answer['account_data'])];
    return {
      start: formatSyncToken(since),
      end: answer['next_batch'] ?? '',
      chunk,
    };
  }

  /**
   * The same of one room that the user may read, joined or not.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 403 `M_FORBIDDEN`
   * @spec client-server-api#room-previews
   */
  async newsOfRoom(
    requester: Requester,
    roomId: string,
    from: string | undefined,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<JsonObject> {
    await this.access.read(requester, roomId);
    const since =
      from === undefined ? this.sync.currentToken() : (await this.sync.placed(parseSyncToken(from), signal)).token;
    const deadlineMs = this.clock.monotonicMs() + timeoutMs;
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      // The wait begins before the reading, so that nothing falls between the two.
      const wait = this.notifier.begin(requester.userId, {
        timeoutMs: leftMs,
        signal,
        inRoom: (changed) => changed === roomId,
      });
      try {
        const now = { ...since, events: this.sync.currentToken().events };
        const chunk = await this.#eventsOf(requester, roomId, since.events, now.events);
        if (chunk.length > 0 || (await wait.outcome) !== 'news')
          return { start: formatSyncToken(since), end: formatSyncToken(now), chunk };
      } finally {
        wait.end();
      }
    }
  }

  async #eventsOf(requester: Requester, roomId: string, after: number, upTo: number): Promise<JsonObject[]> {
    if (this.activity.changedRooms(new Set([roomId]), after).length === 0) return [];
    const slices = await this.timelines.latest([roomId], { after, upTo, limit: eventsPerRoom });
    const visible = await this.visibility.visible(requester.userId, slices.get(roomId)?.events ?? []);
    // Whoever may not read on is told so, rather than left waiting.
    if (visible.length === 0) await this.access.read(requester, roomId);
    return (await this.serializer.serialize(requester, visible)) as unknown as JsonObject[];
  }

  async #invites(requester: Requester, roomIds: readonly string[]): Promise<JsonObject[]> {
    if (roomIds.length === 0) return [];
    const wanted = new Set(roomIds);
    const invited = await this.memberships.roomsOf(requester.userId, ['invite']);
    const events = await this.events.inOrder(
      invited.filter((each) => wanted.has(each.roomId)).map((each) => each.eventId),
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
