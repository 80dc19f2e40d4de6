import type { RemoteRoomGateway } from '@rookery/rooms';
import { Injectable } from '@nestjs/common';
import { FederationClient, FederationRequestError, federationPath } from '@rookery/federation-client';
import {
  domainOf,
  isJsonObject,
  isValidRoomId,
  isValidServerName,
  type JsonObject,
  MatrixError,
} from '@rookery/matrix-types';
import { Cache, Clock, Config, Metrics, SingleFlight } from '@rookery/platform';
import { asMatrixError, Candidates } from './candidates.js';

const timeoutMs = 10_000;
const maxAliasBytes = 262_144;
const maxAliasServers = 100;
const maxDirectoryBytes = 4_194_304;
/** Rooms of a page, which are also asked for: where less of an answer is handed on, its token leads past the rest. */
const maxDirectoryPage = 500;
const maxHierarchyBytes = 4_194_304;
/** Servers that are asked for one room of a space: a space with many rooms that nobody shows must not take for ever. */
const maxHierarchyServers = 3;
const maxComplexityServers = 3;
/** For how long is believed what was told of a room, milliseconds. */
const hierarchyTtlMs = 5 * 60_000;
/**
 * For how long that a child is not shown, and what was told with it: as long as one look at the space may take. Whoever is given
 * access sees the child when they look again.
 */
const hiddenTtlMs = 5_000;
const maxChildren = 100;

interface ToldRoom {
  /** `undefined`: the server does not show it. */
  readonly room: JsonObject | undefined;
  readonly untilMs: number;
}

/** Looks rooms up on other servers: aliases, directories, spaces. */
@Injectable()
export class RemoteDirectory {
  readonly #rooms: Cache<string, ToldRoom>;
  readonly #asking = new SingleFlight<JsonObject | undefined>();
  readonly #count;

  constructor(
    private readonly client: FederationClient,
    private readonly candidates: Candidates,
    private readonly clock: Clock,
    config: Config,
    metrics: Metrics,
  ) {
    this.#rooms = new Cache(config, 'get_room_hierarchy', {
      invalidation: 'expires',
      max: 8 * 1_048_576,
      sizeOf: ({ room }) => 256 + (room === undefined ? 0 : JSON.stringify(room).length * 2),
    });
    this.#count = metrics.counter('synapse_federation_client_sent_queries');
  }

  /**
   * Asks the server of an alias where it leads; `undefined` when there is no such alias, or nobody to ask.
   * @throws MatrixError 502 or 504 when that server does not answer
   * @spec server-server-api#get_matrixfederationv1querydirectory
   */
  async resolveAlias(alias: string): ReturnType<RemoteRoomGateway['directory']['resolveAlias']> {
    const server = domainOf(alias);
    if (this.candidates.usable([server]).length === 0) return undefined;
    this.#count.inc({ type: 'directory' });
    let answer: JsonObject;
    try {
      const path = '/_matrix/federation/v1/query/directory';
      const query = { room_alias: alias };
      const more = { timeoutMs, maxBytes: maxAliasBytes, ignoreBackoff: true };
      answer = await this.client.getJson(server, path, query, more);
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      if (error.status === 404) return undefined;
      const message = `${server} does not tell of the alias`;
      throw error.reason === 'timeout' ? MatrixError.gatewayTimeout(message) : MatrixError.badGateway(message);
    }
    const { room_id: roomId, servers } = answer;
    if (typeof roomId !== 'string' || !isValidRoomId(roomId)) {
      throw MatrixError.badGateway(`${server} gave a wrong answer about the alias`);
    }
    const named = Array.isArray(servers)
      ? servers
          .slice(0, maxAliasServers)
          .filter((name): name is string => typeof name === 'string' && isValidServerName(name))
      : [];
    // Who knows the alias knows the room, whatever the list says.
    return { roomId, servers: [...new Set([...named, server])] };
  }

  /**
   * A page of another server's directory, of 500 rooms at most; entries that are none are left out.
   * @throws MatrixError 404 when the server may not be asked, what it refuses with, 502 or 504
   * @spec server-server-api#public-room-directory
   */
  async publicRooms(server: string, body: Readonly<JsonObject>): Promise<JsonObject> {
    if (this.candidates.usable([server]).length === 0) throw MatrixError.notFound('The server cannot be reached');
    const { since, filter } = body;
    const limit = Math.min(Number(body['limit']) || maxDirectoryPage, maxDirectoryPage);
    const given = Object.entries(body).filter(([, value]) => value !== undefined);
    const wanted = { ...Object.fromEntries(given), limit };
    const path = '/_matrix/federation/v1/publicRooms';
    const more = { timeoutMs, maxBytes: maxDirectoryBytes, ignoreBackoff: true };
    let answer: JsonObject;
    try {
      answer =
        filter === undefined
          ? await this.client.getJson(server, path, wanted as Record<string, string | number | boolean>, more)
          : await this.client.postJson(server, path, wanted, more);
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      // A wrong token is the client's doing.
      if (error.errcode === 'M_INVALID_PARAM' && since !== undefined) throw error.toMatrixError();
      throw asMatrixError(error);
    }
    const { chunk, next_batch: next, prev_batch: previous, total_room_count_estimate: total } = answer;
    return {
      chunk: Array.isArray(chunk) ? chunk.slice(0, limit).flatMap((room: unknown) => publishedRoom(room) ?? []) : [],
      ...(isToken(next) && { next_batch: next }),
      ...(isToken(previous) && { prev_batch: previous }),
      ...(isCount(total) && { total_room_count_estimate: total }),
    };
  }

  /**
   * A room and its children as the first of some servers shows them; `undefined` when none does. What a server tells of the
   * children serves for these, too, where that server is among those to ask.
   * @spec server-server-api#get_matrixfederationv1hierarchyroomid
   */
  async hierarchy(roomId: string, servers: readonly string[], suggestedOnly: boolean): Promise<JsonObject | undefined> {
    const usable = this.candidates.usable(servers).slice(0, maxHierarchyServers);
    for (const server of usable) {
      const kept = this.#kept(server, roomId, suggestedOnly);
      if (kept?.room) return { room: kept.room };
    }
    for (const server of usable) {
      if (this.#kept(server, roomId, suggestedOnly)) continue;
      const key = cacheKey(server, roomId, suggestedOnly);
      const room = await this.#asking.run(key, () => this.#ask(server, roomId, suggestedOnly));
      if (room) return { room };
    }
    return undefined;
  }

  /**
   * How large a room is as the first of some servers says; `undefined` when none does.
   * MSC1965 has the endpoint; it is in no version of the specification.
   */
  async complexity(roomId: string, servers: readonly string[]): Promise<number | undefined> {
    const path = federationPath`/_matrix/federation/unstable/rooms/${roomId}/complexity`;
    for (const server of this.candidates.usable(servers).slice(0, maxComplexityServers)) {
      try {
        const more = { timeoutMs, maxBytes: 65_536, retries: 'none', awaited: true } as const;
        const { v1 } = await this.client.getJson(server, path, {}, more);
        if (typeof v1 === 'number') return v1;
      } catch (error) {
        if (!(error instanceof FederationRequestError)) throw error;
      }
    }
    return undefined;
  }

  async #ask(server: string, roomId: string, suggestedOnly: boolean): Promise<JsonObject | undefined> {
    const path = federationPath`/_matrix/federation/v1/hierarchy/${roomId}`;
    const more = { timeoutMs, maxBytes: maxHierarchyBytes, retries: 'none', awaited: true } as const;
    try {
      const answer = await this.client.getJson(server, path, { suggested_only: suggestedOnly }, more);
      const room = shownRoom(answer['room']);
      if (room?.['room_id'] !== roomId) return undefined;
      const hidesAny = this.#keepChildren(server, answer, room, suggestedOnly);
      this.#keep(server, roomId, suggestedOnly, room, hidesAny ? hiddenTtlMs : hierarchyTtlMs);
      return room;
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      return undefined;
    }
  }

  /**
   * Children that are no spaces need not be asked for: they have none of their own.
   * @returns whether there are some that are not shown
   */
  #keepChildren(server: string, answer: Readonly<JsonObject>, room: JsonObject, suggestedOnly: boolean): boolean {
    const entries = room['children_state'] as readonly JsonObject[];
    const named = new Set(entries.map((entry) => entry['state_key']));
    const { children, inaccessible_children: hidden } = answer;
    for (const child of Array.isArray(children) ? children.slice(0, maxChildren) : []) {
      const shown = shownRoom(child);
      const childId = shown?.['room_id'];
      if (typeof childId !== 'string' || !named.has(childId) || shown?.['room_type'] === 'm.space') continue;
      this.#keep(server, childId, suggestedOnly, { ...shown, children_state: [] }, hierarchyTtlMs);
    }
    let hidesAny = false;
    for (const childId of Array.isArray(hidden) ? hidden.slice(0, maxChildren) : []) {
      if (typeof childId !== 'string' || !named.has(childId)) continue;
      this.#keep(server, childId, suggestedOnly, undefined, hiddenTtlMs);
      hidesAny = true;
    }
    return hidesAny;
  }

  #kept(server: string, roomId: string, suggestedOnly: boolean): ToldRoom | undefined {
    const kept = this.#rooms.get(cacheKey(server, roomId, suggestedOnly));
    return kept && kept.untilMs > this.clock.nowMs() ? kept : undefined;
  }

  #keep(server: string, roomId: string, suggestedOnly: boolean, room: JsonObject | undefined, ttlMs: number): void {
    const untilMs = this.clock.nowMs() + ttlMs;
    this.#rooms.set(cacheKey(server, roomId, suggestedOnly), { room, untilMs });
  }
}

const cacheKey = (server: string, roomId: string, suggestedOnly: boolean): string =>
  `${suggestedOnly ? 's' : 'a'}${server} ${roomId}`;
const isToken = (value: unknown): value is string => typeof value === 'string' && value.length <= 4_096;
const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

const texts = ['name', 'topic', 'avatar_url', 'canonical_alias', 'join_rule', 'room_type'] as const;

/** What clients may rely on in an entry of a directory; `undefined` when it is none. */
function publishedRoom(told: unknown): JsonObject | undefined {
  if (!isJsonObject(told)) return undefined;
  const { room_id: roomId, num_joined_members: joined, world_readable: readable, guest_can_join: guests } = told;
  if (typeof roomId !== 'string' || !isValidRoomId(roomId)) return undefined;
  const room: JsonObject = {
    room_id: roomId,
    num_joined_members: isCount(joined) ? joined : 0,
    world_readable: readable === true,
    guest_can_join: guests === true,
  };
  for (const key of texts) if (typeof told[key] === 'string') room[key] = told[key];
  return room;
}

/** The same for a room of a space, with its children. */
function shownRoom(told: unknown): JsonObject | undefined {
  const room = publishedRoom(told);
  if (!room || !isJsonObject(told)) return undefined;
  const { children_state: children, allowed_room_ids: allowed, room_version: version, encryption } = told;
  if (typeof version === 'string') room['room_version'] = version;
  if (typeof encryption === 'string') room['encryption'] = encryption;
  if (Array.isArray(allowed)) {
    room['allowed_room_ids'] = allowed
      .slice(0, maxChildren)
      .filter((id) => typeof id === 'string' && isValidRoomId(id));
  }
  room['children_state'] = (Array.isArray(children) ? children.slice(0, maxChildren) : []).flatMap((entry: unknown) => {
    if (!isJsonObject(entry)) return [];
    const { type, state_key, sender, content, origin_server_ts } = entry;
    if (typeof state_key !== 'string' || !isValidRoomId(state_key)) return [];
    const isChild = type === 'm.space.child' && typeof sender === 'string' && isJsonObject(content);
    return isChild
      ? [{ type, state_key, sender, content, origin_server_ts: isCount(origin_server_ts) ? origin_server_ts : 0 }]
      : [];
  });
  return room;
}
