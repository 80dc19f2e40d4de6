import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import { RoomActivity } from '../caches/room-activity.js';
import { RoomFactsCache } from '../caches/room-facts.js';
import { formatSyncToken, parseSyncToken, type SyncToken, tokenStreams } from '../request/sync-token.js';
import { SyncService } from '../sync.service.js';
import { type ConnectionIdentity, type ConnectionMemory, Connections, type RoomMemory } from './connections.js';
import { Extensions } from './extensions.js';
import { LazyMembers } from './lazy-members.js';
import { type FilterFacts, selectRooms, type Selection, sortRooms } from './lists.js';
import type { SlidingList, SlidingRequest } from './request.js';
import { RoomAnswerWriter } from './room-answers.js';
import { planRooms } from './room-plan.js';
import { RoomsOfUser, type UserRoomView } from './rooms-of-user.js';

/** Who asks, and how. */
export interface SlidingSyncQuery {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly isGuest: boolean;
  readonly request: SlidingRequest;
  /** What the last answer gave; absent for a new connection. */
  readonly pos: string | undefined;
  readonly timeoutMs: number;
}

interface Position {
  readonly connection: number;
  readonly token: SyncToken;
}

interface Draft {
  readonly body: JsonObject;
  readonly changes: ReadonlyMap<string, RoomMemory>;
  readonly lazyMembers: Map<string, Map<string, string>>;
  readonly now: SyncToken;
  /** Nothing in it is news: the client would rather wait. */
  readonly isEmpty: boolean;
}

/** How long to wait for other processes' news before answering with what there is, milliseconds. */
const catchUpMs = 1_000;

/** Simplified sliding sync (MSC4186): windows on lists of rooms, and only what is new in them. */
@Injectable()
export class SlidingSyncService {
  readonly #lazyMembers = new LazyMembers();

  constructor(
    private readonly sync: SyncService,
    private readonly connections: Connections,
    private readonly roomsOfUser: RoomsOfUser,
    private readonly activity: RoomActivity,
    private readonly facts: RoomFactsCache,
    private readonly writer: RoomAnswerWriter,
    private readonly extensions: Extensions,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
  ) {}

  /**
   * Answers at once where there is news or the connection is new, else when there is, or when the time is over.
   * @param signal ends the wait early; then the connection is left as it was
   * @throws MatrixError 400 `M_UNKNOWN_POS`
   */
  async answer(query: SlidingSyncQuery, signal: AbortSignal): Promise<JsonObject> {
    const position = query.pos === undefined ? undefined : parsePosition(query.pos);
    const identity: ConnectionIdentity = {
      userId: query.userId,
      deviceId: query.deviceId ?? '',
      connId: query.request.connId,
    };
    const memory = position && (await this.connections.resume(identity, position.connection));
    if (memory && query.pos !== undefined) this.#lazyMembers.confirm(memory.key, query.pos);
    const since = position?.token;
    if (since) await this.notifier.reached('events', since.events, { timeoutMs: catchUpMs, signal });
    const draft = await this.#await(query, memory, since, signal);
    // Nobody will hear this answer, so it must not count as sent.
    if (signal.aborted) return { ...draft.body, pos: query.pos ?? '' };
    const saved = await this.connections.save(identity, memory, draft.changes);
    const pos = `${saved.position}/${formatSyncToken(draft.now)}`;
    this.#lazyMembers.sending(saved.key, pos, draft.lazyMembers);
    return { pos, ...draft.body };
  }

  async #await(
    query: SlidingSyncQuery,
    memory: ConnectionMemory | undefined,
    since: SyncToken | undefined,
    signal: AbortSignal,
  ): Promise<Draft> {
    const deadlineMs = this.clock.monotonicMs() + query.timeoutMs;
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      const enough = new AbortController();
      // The wait begins before the reading, so that nothing falls between the two.
      const news =
        since !== undefined && leftMs > 0
          ? this.notifier.wait(query.userId, { timeoutMs: leftMs, signal: AbortSignal.any([signal, enough.signal]) })
          : undefined;
      try {
        const draft = await this.#draft(query, memory, since);
        if (!draft.isEmpty || news === undefined) return draft;
        if ((await news) !== 'news') return draft;
      } finally {
        enough.abort();
      }
    }
  }

  async #draft(
    { userId, deviceId, isGuest, request }: SlidingSyncQuery,
    memory: ConnectionMemory | undefined,
    since: SyncToken | undefined,
  ): Promise<Draft> {
    const now = later(this.sync.currentToken(), since);
    const view = await this.roomsOfUser.view(userId, now.events);
    const selection = await this.#select(userId, request, view);
    const joined = new Set(view.listed.filter((room) => room.section === 'join').map((room) => room.roomId));
    const news = await this.extensions.gather({ userId, deviceId, isGuest, since, now, joined, request });
    const plan = planRooms(selection, view.left, {
      memory,
      since: since?.events,
      changed: new Set(since === undefined ? [] : this.activity.changedRooms(joined, since.events)),
      read: news.readRooms,
    });
    const answers = await this.writer.write(plan.parts, {
      userId,
      deviceId,
      since: since?.events,
      now: now.events,
      hasMember: (roomId, member, eventId) => this.#lazyMembers.has(memory?.key, roomId, member, eventId),
    });
    const changes = new Map(plan.changes);
    for (const part of plan.parts) changes.set(part.roomId, remember(part.memory, part));
    const extensions = await this.extensions.write(news, {
      selection,
      deferred: plan.deferred,
      memory,
      timelines: answers.timelines,
      changes,
    });
    for (const [roomId, changed] of changes) {
      if (isSame(memory?.rooms.get(roomId), changed)) changes.delete(roomId);
    }
    return {
      body: { lists: selection.lists, rooms: Object.fromEntries(answers.rooms), extensions: extensions.body },
      changes,
      lazyMembers: answers.lazyMembers,
      now,
      isEmpty: answers.rooms.size === 0 && extensions.isEmpty,
    };
  }

  async #select(userId: string, request: SlidingRequest, view: UserRoomView): Promise<Selection> {
    const facts = new Map<SlidingList, FilterFacts>();
    const present = view.listed.map((room) => room.roomId);
    const joined = new Set(view.listed.filter((room) => room.section === 'join').map((room) => room.roomId));
    for (const list of request.lists.values()) {
      const { spaces, tags, notTags } = list.filters ?? {};
      facts.set(list, {
        // A space that the user is not in must not be explored by trying.
        inSpaces: spaces
          ? await this.facts.childrenOf(spaces.filter((spaceId) => joined.has(spaceId)))
          : new Set<string>(),
        tags: tags || notTags ? await this.roomsOfUser.tags(userId, present) : new Map<string, ReadonlySet<string>>(),
      });
    }
    return selectRooms(sortRooms(view.listed), request, (list) => facts.get(list) ?? noFacts);
  }
}

const noFacts: FilterFacts = { inSpaces: new Set(), tags: new Map() };

/** @throws MatrixError 400 `M_UNKNOWN_POS`: this server never gave it */
function parsePosition(pos: string): Position {
  const [, connection, token] = /^(\d{1,15})\/(s[\d_]{1,300})$/.exec(pos) ?? [];
  try {
    if (connection !== undefined && token !== undefined)
      return { connection: Number(connection), token: parseSyncToken(token) };
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
  }
  throw new MatrixError(400, 'M_UNKNOWN_POS', 'The position is not one of this server: start anew');
}

/** A position from a process that is ahead must not make time run backwards. */
function later(now: SyncToken, since: SyncToken | undefined): SyncToken {
  if (since === undefined) return now;
  return Object.fromEntries(tokenStreams.map((stream) => [stream, Math.max(now[stream], since[stream])])) as SyncToken;
}

function remember(
  before: RoomMemory | undefined,
  {
    section,
    config,
    initial,
  }: {
    section: RoomMemory['section'];
    config: { timelineLimit: number; requiredState: { key: string } };
    initial: boolean;
  },
): RoomMemory {
  return {
    section,
    sentUpTo: undefined,
    timelineLimit: config.timelineLimit,
    requiredState: config.requiredState.key,
    accountData: !initial && before?.accountData === true,
    receipts: !initial && before?.receipts === true,
  };
}

function isSame(a: RoomMemory | undefined, b: RoomMemory): boolean {
  return (
    a !== undefined &&
    a.section === b.section &&
    a.sentUpTo === b.sentUpTo &&
    a.timelineLimit === b.timelineLimit &&
    a.requiredState === b.requiredState &&
    a.accountData === b.accountData &&
    a.receipts === b.receipts
  );
}
