import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { RemoteInvites } from './remote-invites.js';
import { RemoteJoins } from './remote-joins.js';
import { RemoteLeaves } from './remote-leaves.js';
import { RoomHosts } from './room-hosts.js';

/** Servers of a room that are asked to let somebody in, beside those whose users may invite. */
const maxOthers = 5;

/** Ways in and out of rooms that lead by way of another server. */
@Injectable()
export class RemoteMembership {
  constructor(
    private readonly joins: RemoteJoins,
    private readonly leaves: RemoteLeaves,
    private readonly invites: RemoteInvites,
    private readonly hosts: RoomHosts,
  ) {}

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

  claimInvite(roomId: string, sender: string, userId: string, signed: Readonly<JsonObject>): Promise<void> {
    return this.invites.claim(roomId, sender, userId, signed);
  }
}
