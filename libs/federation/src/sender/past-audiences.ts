import type { Db } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import type { Audience } from './remote-audience.js';
import { type AudienceChange, audienceChanges, serverAclsOf, serversSince } from './sender.query.js';

/**
 * Who was in rooms at places of the stream of events: what is there now, with what changed since taken back. Who joined after an
 * event is not sent it, who left after it is.
 */
export class PastAudiences {
  private constructor(
    private readonly serverName: string,
    /** Servers that were in a room all the time. */
    private readonly servers: ReadonlyMap<string, readonly string[]>,
    private readonly acls: ReadonlyMap<string, string>,
    /** By room, then by type and state key; oldest first. */
    private readonly changes: ReadonlyMap<string, readonly (readonly AudienceChange[])[]>,
  ) {}

  /** @param after the places that are asked for lie behind this one */
  static async read(db: Db, serverName: string, roomIds: readonly string[], after: number): Promise<PastAudiences> {
    const [servers, acls] = await Promise.all([serversSince(db, roomIds, after), serverAclsOf(db, roomIds)]);
    // Last, so that what changes meanwhile is taken back as well.
    const byRoom = Map.groupBy(await audienceChanges(db, roomIds, after), ({ roomId }) => roomId);
    const changes = new Map<string, AudienceChange[][]>();
    for (const [roomId, ofRoom] of byRoom)
      changes.set(roomId, [...Map.groupBy(ofRoom, ({ type, stateKey }) => `${type}\n${stateKey}`).values()]);
    return new PastAudiences(serverName, servers, acls, changes);
  }

  /** The other servers in a room before what happened at a place, and what shut them out. */
  before(roomId: string, streamOrdering: number): Audience {
    const servers = new Set(this.servers.get(roomId));
    let aclId = this.acls.get(roomId);
    for (const ofKey of this.changes.get(roomId) ?? []) {
      const next = ofKey.find((change) => change.streamOrdering >= streamOrdering);
      const { eventId, membership } = next ? next.before : ofKey.at(-1)!.after;
      const { type, stateKey } = ofKey[0]!;
      if (type === 'm.room.server_acl') aclId = eventId;
      else if (membership === 'join') servers.add(domainOf(stateKey));
    }
    servers.delete(this.serverName);
    return { servers: [...servers], aclId };
  }
}
