import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type RemoteRoomGateway, RoomPorts } from '@rookery/rooms';
import { Backfiller } from './backfiller.js';
import { MissingEvents } from './missing-events.js';
import { PolicyRequests } from './policy-requests.js';
import { RemoteLeaves } from './remote-leaves.js';
import { RemoteDirectory } from './remote-directory.js';
import { RemoteEventByTime } from './remote-event-by-time.js';
import { RemoteInvites } from './remote-invites.js';
import { RemoteJoins } from './remote-joins.js';
import { RoomHosts } from './room-hosts.js';

/** Servers of a room that are asked to let somebody in, beside those whose users may invite. */
const maxOthers = 5;

/** Connects rooms with other servers, unless the settings allow to speak with none. */
@Injectable()
export class FederationGateway implements RemoteRoomGateway {
  // Eleven parameters: the face of all that other servers do for rooms, one for each kind of it.
  constructor(
    private readonly joins: RemoteJoins,
    private readonly leaves: RemoteLeaves,
    private readonly invites: RemoteInvites,
    private readonly directory: RemoteDirectory,
    private readonly backfiller: Backfiller,
    private readonly byTime: RemoteEventByTime,
    private readonly hosts: RoomHosts,
    private readonly policies: PolicyRequests,
    missing: MissingEvents,
    ports: RoomPorts,
    config: Config,
  ) {
    if (config.get('federation_domain_whitelist')?.length === 0) return;
    ports.remoteRooms.give(this);
    ports.missingEvents.give(missing);
  }

  join(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void> {
    return this.joins.join(userId, roomId, servers, content);
  }

  async joinAuthorised(
    userId: string,
    roomId: string,
    servers: readonly string[],
    content: Readonly<JsonObject>,
  ): Promise<void> {
    const inviting = await this.hosts.inviting(roomId);
    const others = await this.hosts.likely(roomId, maxOthers);
    await this.joins.joinAuthorised(userId, roomId, [...inviting, ...servers, ...others], content);
  }

  knock(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void> {
    return this.leaves.knock(userId, roomId, servers, content);
  }

  leave(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void> {
    return this.leaves.leave(userId, roomId, servers, content);
  }

  invite(event: RoomEvent, roomState: readonly JsonObject[]): Promise<RoomEvent> {
    return this.invites.invite(event, roomState);
  }

  askPolicyServer(server: string, event: RoomEvent, keyId: string, timeoutMs: number): Promise<string> {
    return this.policies.sign(server, event, keyId, timeoutMs);
  }

  complexity(roomId: string, servers: readonly string[]): Promise<number | undefined> {
    return this.directory.complexity(roomId, servers);
  }

  resolveAlias(alias: string): ReturnType<RemoteRoomGateway['resolveAlias']> {
    return this.directory.resolveAlias(alias);
  }

  publicRooms(server: string, body: Readonly<JsonObject>): Promise<JsonObject> {
    return this.directory.publicRooms(server, body);
  }

  hierarchy(roomId: string, servers: readonly string[], suggestedOnly: boolean): Promise<JsonObject | undefined> {
    return this.directory.hierarchy(roomId, servers, suggestedOnly);
  }

  timestampToEvent(
    roomId: string,
    ts: number,
    direction: 'f' | 'b',
  ): Promise<{ readonly eventId: string; readonly ts: number } | undefined> {
    return this.byTime.find(roomId, ts, direction);
  }

  backfill(roomId: string, limit: number, depth?: number): Promise<boolean> {
    return this.backfiller.backfill(roomId, limit, depth);
  }
}
