import { Injectable } from '@nestjs/common';
import type { HttpReply } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import {
  EventGraph,
  EventStore,
  PrejoinState,
  RoomHeroes,
  RoomServers,
  RoomStateReader,
  type StoredEvent,
} from '@rookery/rooms';
import { splitStateKey, stateKeyOf, type StateMap } from '@rookery/state-res';
import { PduReplies, wirePdu } from '../rooms/pdu-replies.js';
import { MembershipRequests } from './membership-requests.js';

/** How a joining server wants its answer. */
export interface JoinOptions {
  /** It can do without most of the members. */
  readonly omitMembers?: boolean;
  /** As the first version of the endpoint gave it. */
  readonly asPair?: boolean;
}

/** Tells servers that join what they need to know of the room. */
@Injectable()
export class JoinAnswers {
  // Nine parameters: one for each field of the answer to a join.
  constructor(
    private readonly requests: MembershipRequests,
    private readonly servers: RoomServers,
    private readonly state: RoomStateReader,
    private readonly graph: EventGraph,
    private readonly heroes: RoomHeroes,
    private readonly prejoin: PrejoinState,
    private readonly events: EventStore,
    private readonly replies: PduReplies,
    private readonly config: Config,
  ) {}

  /**
   * Stores a join; the room's state before it, and what that rests upon.
   * @throws MatrixError as {@link MembershipRequests.send}
   * @spec server-server-api#put_matrixfederationv2send_joinroomideventid
   */
  async take(
    origin: string,
    roomId: string,
    eventId: string,
    content: JsonObject,
    { omitMembers = false, asPair = false }: JoinOptions,
  ): Promise<HttpReply> {
    const serversBefore = new Set(await this.servers.of(roomId));
    const stored = await this.requests.send('join', origin, roomId, eventId, content);
    const before = (await this.state.idsBefore(stored)) ?? new Map<string, string>();
    const state = omitMembers ? await this.#withoutMembers(roomId, stored, before) : [...before.values()];
    const authChain = await this.graph.authChain(roomId, [...state, eventId]);
    if (omitMembers) for (const id of state) authChain.delete(id);
    const to = { origin, method: '/send_join' } as const;
    const more: JsonObject = {
      origin: this.config.serverName,
      event: this.replies.wire(to, [stored.event])[0],
      members_omitted: omitMembers,
      ...(omitMembers && { servers_in_room: [...serversBefore] }),
    };
    return this.replies.lists(to, { state, auth_chain: authChain }, more, asPair);
  }

  /** What people outside see of a room, as events. */
  async shownOutside(roomId: string): Promise<JsonObject[]> {
    const ids = await this.state.currentIds(roomId, { types: this.prejoin.types() });
    return (await this.events.inOrder(this.prejoin.idsAmong(ids))).map(({ event }) => wirePdu(event));
  }

  /** The state without its members, but for those by whom a room without a name is called. */
  async #withoutMembers(roomId: string, { event }: StoredEvent, before: StateMap): Promise<string[]> {
    const isNamed = before.has(stateKeyOf('m.room.name', '')) || before.has(stateKeyOf('m.room.canonical_alias', ''));
    const named = isNamed ? [] : ((await this.heroes.of([roomId], event.sender)).get(roomId) ?? []);
    const kept = new Set([...named, event.sender]);
    return [...before].flatMap(([key, id]) => {
      const [type, stateKey] = splitStateKey(key);
      return type !== 'm.room.member' || kept.has(stateKey) ? [id] : [];
    });
  }
}
