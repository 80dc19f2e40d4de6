import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { PartialRooms } from '@rookery/rooms';
import { RoomActivity } from '../caches/room-activity.js';
import { RoomFactsCache } from '../caches/room-facts.js';
import type { TakeMembers } from '../request/device-members.js';
import type { SyncToken } from '../request/sync-token.js';
import { SyncService } from '../sync.service.js';
import type { ConnectionMemory, RoomMemory } from './connections.js';
import { Extensions } from './extensions.js';
import { type FilterFacts, selectRooms, type Selection, sortRooms } from './lists.js';
import type { SlidingList, SlidingRequest } from './request.js';
import { RoomAnswerWriter } from './room-answers.js';
import { planRooms, type RoomPart } from './room-plan.js';
import { RoomsOfUser, type UserRoomView } from './rooms-of-user.js';

/** For whom an answer is drafted, and what the client has. */
export interface DraftQuery {
  readonly userId: string;
  readonly deviceId: string | undefined;
  readonly isGuest: boolean;
  readonly request: SlidingRequest;
  /** Absent for a new connection, as is `since`. */
  readonly memory: ConnectionMemory | undefined;
  readonly since: SyncToken | undefined;
  /** Members that go with timelines. */
  readonly takeMembers: TakeMembers;
}

/** An answer that has not been given yet. */
export interface Draft {
  readonly lists: JsonObject;
  readonly rooms: JsonObject;
  readonly extensions: JsonObject;
  readonly changes: ReadonlyMap<string, RoomMemory>;
  readonly now: SyncToken;
  /** There is no news of rooms or extensions: the client would rather wait. */
  readonly isEmpty: boolean;
}

/** Drafts answers: what is new between two positions, seen through a connection's windows. */
@Injectable()
export class SlidingDrafts {
  constructor(
    private readonly sync: SyncService,
    private readonly roomsOfUser: RoomsOfUser,
    private readonly activity: RoomActivity,
    private readonly facts: RoomFactsCache,
    private readonly writer: RoomAnswerWriter,
    private readonly extensions: Extensions,
    private readonly partial: PartialRooms,
  ) {}

  /** Everything that the client has not got, in a number of queries that hardly grows with the rooms. */
  async draft({ userId, deviceId, isGuest, request, memory, since, takeMembers }: DraftQuery): Promise<Draft> {
    const now = this.sync.currentToken();
    const view = await this.roomsOfUser.view(userId, now.events, ({ roomId, streamOrdering }) => {
      const section = memory?.rooms.get(roomId)?.section;
      if (section === 'invite') return streamOrdering > (since?.events ?? 0);
      return section !== undefined && section !== 'leave';
    });
    const selection = await this.#select(userId, request, view);
    const joined = new Set(view.listed.filter((room) => room.section === 'join').map((room) => room.roomId));
    const anew =
      since === undefined
        ? []
        : view.listed.flatMap(({ section, roomId, membership }) =>
            section === 'join' && membership.streamOrdering > since.events ? [roomId] : [],
          );
    const news = await this.extensions.gather({ userId, deviceId, isGuest, since, now, joined, anew, request });
    const plan = planRooms(selection, view.left, {
      memory,
      since: since?.events,
      changed: new Set(since === undefined ? [] : this.activity.changedRooms(joined, since.events)),
      read: news.readRooms,
      asked: new Set(
        view.listed.flatMap(({ section, roomId, membership }) =>
          (section === 'invite' || section === 'knock') && membership.streamOrdering > (since?.events ?? 0)
            ? [roomId]
            : [],
        ),
      ),
    });
    const answers = await this.writer.write(plan.parts, {
      userId,
      deviceId,
      since: since?.events,
      now: now.events,
      takeMembers,
    });
    const changes = new Map(plan.changes);
    for (const part of plan.parts) changes.set(part.roomId, remember(part));
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
      lists: selection.lists,
      rooms: Object.fromEntries(answers.rooms),
      extensions: extensions.body,
      changes,
      now,
      isEmpty: answers.rooms.size === 0 && extensions.isEmpty,
    };
  }

  async #select(userId: string, request: SlidingRequest, view: UserRoomView): Promise<Selection> {
    const facts = new Map<SlidingList, FilterFacts>();
    const joined = new Set(view.listed.filter((room) => room.section === 'join').map((room) => room.roomId));
    // A space that the user is not in must not be explored by trying.
    const spacesOf = (list: SlidingList): string[] =>
      (list.filters?.spaces ?? []).filter((spaceId) => joined.has(spaceId));
    // All at once; what follows is in memory.
    await this.facts.childrenOf([...new Set([...request.lists.values()].flatMap(spacesOf))]);
    for (const list of request.lists.values()) {
      const { spaces, tags, notTags } = list.filters ?? {};
      facts.set(list, {
        inSpaces: spaces ? await this.facts.childrenOf(spacesOf(list)) : new Set<string>(),
        tags: tags || notTags ? await this.roomsOfUser.tags(userId) : new Map<string, ReadonlySet<string>>(),
      });
    }
    await this.partial.heard();
    return selectRooms(
      sortRooms(view.listed),
      request,
      (list) => facts.get(list) ?? noFacts,
      (roomId) => this.partial.has(roomId),
    );
  }
}

const noFacts: FilterFacts = { inSpaces: new Set(), tags: new Map() };

function remember(part: RoomPart): RoomMemory {
  const { section, config, initial, memory } = part;
  return {
    section,
    sentUpTo: undefined,
    timelineLimit: config.timelineLimit,
    requiredState: config.requiredState.key,
    accountData: !initial && memory?.accountData === true,
    receipts: !initial && memory?.receipts === true,
    typing: !initial && memory?.typing === true,
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
    a.receipts === b.receipts &&
    a.typing === b.typing
  );
}
