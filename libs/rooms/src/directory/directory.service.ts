import { type Infer, json } from '@rookery/http';
import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher, toStateView } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { RemoteRooms } from '../remote-rooms.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { selectAliasesOf } from './alias.query.js';
import { CanonicalAliases } from './canonical-aliases.js';
import {
  countPublicRooms,
  isPublished,
  type PublicRoomRow,
  type PublicRoomSearch,
  selectPublicRooms,
  setNetworkListing,
  setPublished,
} from './directory.query.js';
import { PublicationRules } from './publication-rules.js';

const text = json.nullable(json.string());

/** What somebody looks for in the directory, where clients write `null` for what they do not have. */
export const publicRoomsSchema = json.object({
  limit: json.optional('How many rooms at most.', json.integer({ minimum: 0 })),
  since: json.optional('Where the page begins: a token of the page before or after.', text),
  filter: json.optional(
    'Which rooms.',
    json.nullable(
      json.object({
        generic_search_term: json.optional('What the name, topic or alias of a room has in it.', text),
        room_types: json.optional(
          'The types of the rooms; `null` for ordinary ones.',
          json.nullable(json.array(json.nullable(json.string()), { maxItems: 100 })),
        ),
      }),
    ),
  ),
  include_all_networks: json.optional(
    'Whether rooms of all networks of application services are listed.',
    json.nullable(json.boolean()),
  ),
  third_party_instance_id: json.optional('The network of an application service whose rooms are listed.', text),
});
export type PublicRoomsRequest = Infer<typeof publicRoomsSchema>;

const maxPage = 100;
const maxTermLength = 255;

/** The list of published rooms. */
@Injectable()
export class RoomDirectory {
  /** What is asked of it. */
  static readonly request = publicRoomsSchema;

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly rules: PublicationRules,
    private readonly canonical: CanonicalAliases,
    private readonly state: RoomStateReader,
    private readonly remote: RemoteRooms,
    private readonly modules: ModuleDispatcher,
  ) {}

  /**
   * One page of this server's directory, or of another's.
   * @param forServer another server asks: rooms that it cannot join are left out
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND`
   */
  async search(request: PublicRoomsRequest, server?: string, forServer = false): Promise<JsonObject> {
    const isElsewhere = server !== undefined && server !== this.config.serverName;
    if (isElsewhere && !isValidServerName(server)) throw MatrixError.invalidParam('This is not a server name');
    if (!this.config.get('enable_room_list_search')) return { chunk: [], total_room_count_estimate: 0 };
    if (isElsewhere) {
      const { gateway } = this.remote;
      if (!gateway) throw MatrixError.notFound('The server cannot be reached');
      const given = Object.entries(request).filter(([, value]) => value !== null && value !== undefined);
      return gateway.directory.publicRooms(server, Object.fromEntries(given));
    }
    const limit = Math.max(1, Math.min(request.limit || maxPage, maxPage));
    const since = request.since ? readToken(request.since) : undefined;
    const search: PublicRoomSearch = {
      term: request.filter?.generic_search_term?.slice(0, maxTermLength).replaceAll('\0', '') || undefined,
      types: request.filter?.room_types?.filter((type) => !type?.includes('\0')),
      after: since && { members: since.members, roomId: since.roomId },
      backwards: since?.backwards ?? false,
      limit: limit + 1,
      federatableOnly: forServer,
      network: request.include_all_networks ? 'all' : networkOf(request.third_party_instance_id ?? undefined),
    };
    const [found, total] = await Promise.all([
      selectPublicRooms(this.database, search),
      countPublicRooms(this.database, search),
    ]);
    const hasMore = found.length > limit;
    const rows = found.slice(0, limit);
    if (search.backwards) rows.reverse();
    const first = rows[0];
    const last = rows.at(-1);
    const hasNext = search.backwards ? since !== undefined : hasMore;
    const hasPrevious = search.backwards ? hasMore : since !== undefined;
    return {
      chunk: rows.map(publicRoom),
      total_room_count_estimate: total,
      ...(last && hasNext && { next_batch: writeToken(last, false) }),
      ...(first && hasPrevious && { prev_batch: writeToken(first, true) }),
    };
  }

  /** @throws MatrixError 404 `M_NOT_FOUND` */
  async isPublished(roomId: string): Promise<boolean> {
    const published = await isPublished(this.database, roomId);
    if (published === undefined) throw MatrixError.noSuchRoom();
    return published;
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND` */
  async setPublished(requester: Requester, roomId: string, published: boolean): Promise<void> {
    await this.isPublished(roomId);
    if (!requester.isAdmin && !(await this.canonical.mayChange(requester.userId, roomId))) {
      throw MatrixError.forbidden('You lack the power to change the directory');
    }
    const context = callbackContext(requester);
    if (published) {
      const aliases = await selectAliasesOf(this.database, roomId);
      if (!this.rules.mayPublish(requester.userId, roomId, aliases, requester.isAdmin)) {
        throw MatrixError.forbidden('You may not publish this room');
      }
      if (this.modules.has('userMayPublishRoom')) {
        assertAllowed(await this.modules.gate('userMayPublishRoom', context, requester.userId, roomId));
      }
    }
    if (this.modules.has('checkVisibilityCanBeModified')) {
      const view = toStateView({
        get: async (type, stateKey) => (await this.state.currentEvent(roomId, type, stateKey))?.event,
        ofType: async (type) => (await this.state.current(roomId, { types: [[type]] })).map(({ event }) => event),
        all: async () => (await this.state.current(roomId)).map(({ event }) => event),
      });
      const visibility = published ? 'public' : 'private';
      assertAllowed(await this.modules.gate('checkVisibilityCanBeModified', context, roomId, view, visibility));
    }
    await this.publish(roomId, published);
  }

  /** Changes the directory without asking anybody. */
  async publish(roomId: string, published: boolean): Promise<void> {
    await this.database.write((tx) => setPublished(tx, roomId, published), { name: 'publish_room' });
  }

  /** Lists a room in a network of an application service, or takes it out of there. @throws MatrixError 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND` */
  async setNetworkListing(requester: Requester, networkId: string, roomId: string, listed: boolean): Promise<void> {
    const { appserviceId } = requester;
    if (appserviceId === undefined) throw MatrixError.forbidden('Only application services may do this');
    const set = (tx: Tx): Promise<boolean> => setNetworkListing(tx, appserviceId, networkId, roomId, listed);
    if (!(await this.database.write(set, { name: 'list_room' }))) throw MatrixError.noSuchRoom();
  }
}

/** A published room as clients and servers see it. */
export function publicRoom(row: PublicRoomRow): JsonObject {
  return {
    room_id: row.room_id,
    num_joined_members: row.joined_members,
    world_readable: row.history_visibility === 'world_readable',
    guest_can_join: row.guest_access === 'can_join',
    join_rule: row.join_rules ?? 'invite',
    ...(row.name !== null && { name: row.name }),
    ...(row.topic !== null && { topic: row.topic }),
    ...(row.canonical_alias !== null && { canonical_alias: row.canonical_alias }),
    ...(row.avatar !== null && { avatar_url: row.avatar }),
    ...(row.room_type !== null && { room_type: row.room_type }),
  };
}

interface Token {
  readonly members: number;
  readonly roomId: string;
  readonly backwards: boolean;
}

const writeToken = (row: PublicRoomRow, backwards: boolean): string =>
  Buffer.from(JSON.stringify([row.joined_members, row.room_id, backwards])).toString('base64url');

/** A number that the column of a room's members can hold, on PostgreSQL as well. */
const isMemberCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 2_147_483_647;

function readToken(text: string): Token {
  try {
    const value: unknown = JSON.parse(Buffer.from(text.slice(0, 1000), 'base64url').toString());
    if (Array.isArray(value)) {
      const [members, roomId, backwards] = value as unknown[];
      if (
        isMemberCount(members) &&
        typeof roomId === 'string' &&
        !roomId.includes('\0') &&
        typeof backwards === 'boolean'
      ) {
        return { members, roomId, backwards };
      }
    }
  } catch {
    // Told below.
  }
  throw MatrixError.invalidParam('This is not a token of the directory');
}

function networkOf(instanceId: string | undefined): PublicRoomSearch['network'] {
  if (instanceId === undefined) return undefined;
  const [appserviceId, networkId, more] = instanceId.split('|');
  if (!appserviceId || !networkId || more !== undefined) {
    throw MatrixError.invalidParam('third_party_instance_id must be an application service and a network');
  }
  return { appserviceId, networkId };
}
