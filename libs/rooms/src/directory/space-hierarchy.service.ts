import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock } from '@rookery/platform';
import type { StoredEvent } from '../model/stored-event.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { type RoomSummary, RoomSummaries, viaOf } from './room-summaries.service.js';

/** What somebody asks of a space. */
export interface HierarchyRequest {
  readonly roomId: string;
  readonly suggestedOnly: boolean;
  readonly limit: number;
  readonly maxDepth: number | undefined;
  readonly from: string | undefined;
  /** Servers that may know the space itself; at most {@link maxVia} of them are asked. */
  readonly via?: readonly string[];
  /** Shows what is known here, whoever may see it, and asks no other server: for administrators. */
  readonly everything?: boolean;
}

interface Pending {
  readonly roomId: string;
  readonly depth: number;
  readonly via: readonly string[];
  /** The space by which the walk came here. */
  readonly above?: Pending | undefined;
}

/** Where a page begins. */
interface Start {
  /** How many rooms the pages before have shown: what counts where the walk comes by nothing that is known of the last of them. */
  readonly shown: number;
  /** Stands for the last of them; absent in tokens of earlier versions. */
  readonly last?: string | undefined;
  /** Stand for spaces it lies in. */
  readonly above: ReadonlySet<string>;
}

type Child = Pick<Pending, 'roomId' | 'via'>;

/** A room that was looked up. */
interface LookedUp {
  /** Absent where this server shows nothing of it to whoever asks. */
  readonly local: { readonly summary: RoomSummary; readonly children: readonly StoredEvent[] } | undefined;
  /** Servers that may know it better. */
  readonly lastSeenIn: readonly string[];
}

interface Found {
  readonly room: JsonObject;
  readonly children: readonly Child[];
}

/** Children of one space that another server is told of, as others do; users of this server see all. */
const maxChildrenForServers = 50;
/** As many as a child of a space may name. */
const maxVia = 20;
/** Rooms that one request walks through at most, those of earlier pages included. */
const maxWalk = 1000;
/** How many rooms are looked at together: fewer than a short page wants may be shown, and no more than these are kept. */
const [minAtOnce, maxAtOnce] = [20, 50];
/** Spaces above the last room of a page that its token knows at most, and what it keeps of a room's id, characters. */
const [maxAbove, markLength] = [8, 16];
/** Longest token that is read, characters. */
const maxTokenLength = 400;
/** After so much time no other server is asked for one page; milliseconds. */
const patienceMs = 20_000;
const spaceType = 'm.space';
const childType = 'm.space.child';

/** Walks through a space, depth first. */
@Injectable()
export class SpaceHierarchy {
  constructor(
    private readonly summaries: RoomSummaries,
    private readonly state: RoomStateReader,
    private readonly clock: Clock,
  ) {}

  /**
   * A page of the rooms in a space, the space first. As many as the page may still need are looked up together, a level of the space
   * at a time: the number of queries grows with the levels and not with the rooms.
   * @throws MatrixError 403 `M_FORBIDDEN` when the space is not known or may not be seen, 400 `M_INVALID_PARAM`
   * @spec client-server-api#get_matrixclientv1roomsroomidhierarchy
   */
  async walk(userId: string, request: HierarchyRequest): Promise<JsonObject> {
    const page = new Page(request);
    const pending: Pending[] = [{ roomId: request.roomId, depth: 0, via: request.via?.slice(0, maxVia) ?? [] }];
    const seen = new Set<string>();
    const ahead = new Map<string, LookedUp>();
    const untilMs = this.clock.nowMs() + patienceMs;
    for (let next = pending.pop(); next && seen.size < maxWalk; next = pending.pop()) {
      if (seen.has(next.roomId)) continue;
      if (page.isFull) return page.answer(true);
      if (!ahead.has(next.roomId)) {
        const wanted = Math.min(Math.max(page.missing, minAtOnce), maxAtOnce);
        const roomIds = roomsAhead([...pending.slice(-maxWalk), next], seen, ahead, request.maxDepth, wanted);
        for (const [roomId, room] of await this.#lookUp(userId, roomIds, request)) ahead.set(roomId, room);
      }
      const { local, lastSeenIn } = ahead.get(next.roomId)!;
      ahead.delete(next.roomId);
      seen.add(next.roomId);
      let found = local && this.#told(local);
      if (!found && this.clock.nowMs() < untilMs) found = await this.#elsewhere(userId, next, lastSeenIn, request);
      if (!found) {
        if (next.depth === 0 && request.everything) throw MatrixError.noSuchRoom();
        if (next.depth === 0) throw MatrixError.forbidden('You may not see this room');
      }
      page.take(next, found?.room);
      if (!found || (request.maxDepth !== undefined && next.depth >= request.maxDepth)) continue;
      for (const child of found.children.toReversed()) pending.push({ ...child, depth: next.depth + 1, above: next });
    }
    return page.answer(false);
  }

  /** Rooms as this server shows them, each with an entry. A bounded number of queries. */
  async #lookUp(
    userId: string,
    roomIds: readonly string[],
    { everything, suggestedOnly }: HierarchyRequest,
  ): Promise<Map<string, LookedUp>> {
    const summaries = everything
      ? await this.summaries.known(roomIds)
      : await this.summaries.allVisible(userId, roomIds);
    const others = everything ? [] : roomIds.filter((roomId) => !summaries.has(roomId));
    const [children, lastSeenIn] = await Promise.all([
      this.#childrenOf([...summaries.values()], suggestedOnly),
      others.length === 0 ? undefined : this.summaries.lastSeenIn(others),
    ]);
    return new Map(
      roomIds.map((roomId) => {
        const summary = summaries.get(roomId);
        const local = summary && { summary, children: children.get(roomId) ?? [] };
        return [roomId, { local, lastSeenIn: lastSeenIn?.get(roomId) ?? [] }];
      }),
    );
  }

  #told({ summary, children }: NonNullable<LookedUp['local']>): Found {
    return { room: this.#written(summary, children), children: children.map(childIn) };
  }

  /**
   * A room and its children, for another server, which walks by itself.
   * @throws MatrixError 404 `M_NOT_FOUND`
   * @spec server-server-api#get_matrixfederationv1hierarchyroomid
   */
  async forServer(serverName: string, roomId: string, suggestedOnly: boolean): Promise<JsonObject> {
    const summary = await this.summaries.visibleToServer(serverName, roomId);
    if (typeof summary === 'string') throw MatrixError.notFound('There is no such room, or you may not see it');
    const all = (await this.#childrenOf([summary], suggestedOnly)).get(roomId) ?? [];
    const events = all.slice(0, maxChildrenForServers);
    const children: JsonObject[] = [];
    const inaccessible: string[] = [];
    const childIds = events.map(({ event }) => event.stateKey!);
    for (const [childId, child] of await this.summaries.allVisibleToServer(serverName, childIds)) {
      if (child === 'hidden') inaccessible.push(childId);
      else if (child !== 'unknown') children.push(this.summaries.write(child));
    }
    return { room: this.#written(summary, events), children, inaccessible_children: inaccessible };
  }

  #written(summary: RoomSummary, children: readonly StoredEvent[]): JsonObject {
    const { membership: _, ...shown } = this.summaries.write(summary);
    return {
      ...shown,
      children_state: children.map(({ event }) => ({
        type: event.type,
        state_key: event.stateKey,
        content: event.content,
        sender: event.sender,
        origin_server_ts: event.originServerTs,
      })),
    };
  }

  /** The events by which spaces among some rooms name their rooms, in their order. */
  async #childrenOf(rooms: readonly RoomSummary[], suggestedOnly: boolean): Promise<Map<string, StoredEvent[]>> {
    const spaces = rooms.filter(({ row }) => row.room_type === spaceType).map(({ row }) => row.room_id);
    if (spaces.length === 0) return new Map();
    const named = ({ event }: StoredEvent): boolean =>
      viaOf(event.content).length > 0 && (!suggestedOnly || event.content['suggested'] === true);
    const states = await this.state.currentOf(spaces, { types: [[childType]] });
    return new Map(
      [...states].map(([roomId, events]) => [roomId, events.filter(named).sort(inOrder).slice(0, maxWalk)]),
    );
  }

  /** The same as another server tells it. */
  async #elsewhere(
    userId: string,
    { roomId, via }: Pending,
    lastSeenIn: readonly string[],
    request: HierarchyRequest,
  ): Promise<Found | undefined> {
    if (request.everything) return undefined;
    const servers = [...via, ...lastSeenIn];
    if (servers.length === 0) return undefined;
    const room = await this.summaries.elsewhere(userId, roomId, servers, request.suggestedOnly);
    if (!room) return undefined;
    const state = Array.isArray(room['children_state']) ? room['children_state'].slice(0, maxWalk) : [];
    const children = state.flatMap((entry: unknown) => {
      if (!isJsonObject(entry) || typeof entry['state_key'] !== 'string' || !isJsonObject(entry['content'])) return [];
      return [{ roomId: entry['state_key'], via: viaOf(entry['content']) }];
    });
    return { room: { ...room, children_state: state }, children };
  }
}

/**
 * The rooms of one page, out of a walk that goes through the whole space each time and may not show what it showed for the page before:
 * other servers tell of their rooms one time and not the next.
 */
class Page {
  readonly #request: HierarchyRequest;
  readonly #start: Start;
  #rooms: JsonObject[] = [];
  #last: Pending | undefined;
  #shown = 0;
  #skipped: number;
  /** Whether the walk has come to where the page begins; until then it is taken to begin behind as many rooms as were shown. */
  #isBegun: boolean;

  /** @throws MatrixError 400 `M_INVALID_PARAM` for a token of another request */
  constructor(request: HierarchyRequest) {
    this.#request = request;
    this.#start = request.from === undefined ? { shown: 0, above: new Set() } : readToken(request.from, request);
    this.#skipped = this.#start.shown;
    this.#isBegun = this.#start.last === undefined;
  }

  /** How many rooms the walk has to show yet. */
  get missing(): number {
    return Math.max(0, this.#skipped + this.#request.limit - this.#shown);
  }

  /** Whether no room that comes is of this page. */
  get isFull(): boolean {
    return this.#isBegun && this.missing === 0;
  }

  /** Takes the next room of the walk. @param room absent where it is not shown */
  take(next: Pending, room: JsonObject | undefined): void {
    if (room && ++this.#shown > this.#skipped && this.#rooms.length < this.#request.limit) {
      this.#rooms.push(room);
      this.#last = next;
    }
    if (this.#isBegun || !this.#isBehindStart(next.roomId, room !== undefined)) return;
    this.#isBegun = true;
    this.#rooms = [];
    this.#skipped = this.#shown;
  }

  /** @param isCut whether the walk would have gone on */
  answer(isCut: boolean): JsonObject {
    const end = this.#skipped + this.#rooms.length;
    const hasMore = isCut || this.#shown > end;
    return { rooms: this.#rooms, ...(hasMore && { next_batch: writeToken(end, this.#last, this.#request) }) };
  }

  /** Below a space that is not shown anymore the walk does not go: what comes next comes after all of its rooms. */
  #isBehindStart(roomId: string, isShown: boolean): boolean {
    const mark = markOf(roomId);
    return mark === this.#start.last || (!isShown && this.#start.above.has(mark));
  }
}

const childIn = ({ event }: StoredEvent): Child => ({
  roomId: event.stateKey!,
  via: viaOf(event.content),
});

/**
 * The rooms that a walk comes to next and that are not looked up yet: below those that are, as far as their children are known here.
 * @param pending the last one comes first
 * @param wanted how many rooms, of those and others, the walk may show yet
 */
function roomsAhead(
  pending: Pending[],
  seen: ReadonlySet<string>,
  ahead: ReadonlyMap<string, LookedUp>,
  maxDepth: number | undefined,
  wanted: number,
): string[] {
  const passed = new Set(seen);
  const unknown: string[] = [];
  let shown = 0;
  for (let looks = 0; looks < maxWalk && shown < wanted && passed.size < maxWalk; looks++) {
    const next = pending.pop();
    if (!next) break;
    const { roomId, depth } = next;
    if (passed.has(roomId)) continue;
    passed.add(roomId);
    const known = ahead.get(roomId);
    if (!known) unknown.push(roomId);
    if (!known || known.local) shown++;
    if (maxDepth !== undefined && depth >= maxDepth) continue;
    for (const event of known?.local?.children.toReversed() ?? [])
      pending.push({ ...childIn(event), depth: depth + 1 });
  }
  return unknown;
}

/** @spec client-server-api#ordering-of-children-within-a-space */
function inOrder(a: StoredEvent, b: StoredEvent): number {
  const orderOf = ({ event }: StoredEvent): string | undefined => {
    const { order } = event.content;
    return typeof order === 'string' && /^[\x20-\x7e]{1,50}$/.test(order) ? order : undefined;
  };
  const [orderA, orderB] = [orderOf(a), orderOf(b)];
  if (orderA !== orderB) {
    if (orderA === undefined) return 1;
    if (orderB === undefined) return -1;
    return orderA < orderB ? -1 : 1;
  }
  if (a.event.originServerTs !== b.event.originServerTs) return a.event.originServerTs - b.event.originServerTs;
  return a.event.stateKey! < b.event.stateKey! ? -1 : 1;
}

/** Stands for a room in tokens, so that their length is bounded. */
const markOf = (roomId: string): string => createHash('sha256').update(roomId).digest('base64url').slice(0, markLength);

function writeToken(shown: number, last: Pending | undefined, request: HierarchyRequest): string {
  const marks: string[] = [];
  for (let room = last; room && marks.length <= maxAbove; room = room.above) marks.push(markOf(room.roomId));
  const token = [shown, request.suggestedOnly, request.maxDepth ?? null, ...marks];
  return Buffer.from(JSON.stringify(token)).toString('base64url');
}

/** A token belongs to the parameters that it was made for. */
function readToken(text: string, request: HierarchyRequest): Start {
  try {
    const value: unknown = JSON.parse(Buffer.from(text.slice(0, maxTokenLength), 'base64url').toString());
    if (Array.isArray(value)) {
      const [shown, suggestedOnly, maxDepth, ...marks] = value as unknown[];
      if (
        Number.isSafeInteger(shown) &&
        (shown as number) >= 0 &&
        suggestedOnly === request.suggestedOnly &&
        maxDepth === (request.maxDepth ?? null) &&
        marks.length <= maxAbove + 1 &&
        marks.every((mark) => typeof mark === 'string')
      ) {
        const [last, ...above] = marks;
        return { shown: shown as number, last, above: new Set(above) };
      }
    }
  } catch {
    // Told below.
  }
  throw MatrixError.invalidParam('The token belongs to another request');
}
