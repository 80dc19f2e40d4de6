import { LRUCache } from 'lru-cache';

const maxDevices = 20_000;
const maxMembersPerDevice = 50_000;

/** Which member events a device has been sent, by room and user. */
type SentMembers = Map<string, Map<string, string>>;

/**
 * Remembers per device which member events it was sent while it lazy-loads members, so that they are not sent again.
 * Losing an entry only means sending an event twice.
 * @spec client-server-api#lazy-loading-room-members
 */
export class LazyMemberMemory {
  readonly #devices = new LRUCache<string, { readonly rooms: SentMembers; size: number }>({
    maxSize: maxDevices,
    sizeCalculation: () => 1,
  });

  /** The members of `wanted` (user id to member event id) that the device does not have yet; they count as sent from now on. */
  take(deviceKey: string, roomId: string, wanted: ReadonlyMap<string, string>): Map<string, string> {
    let device = this.#devices.get(deviceKey);
    if (device === undefined || device.size > maxMembersPerDevice) {
      device = { rooms: new Map(), size: 0 };
      this.#devices.set(deviceKey, device);
    }
    let room = device.rooms.get(roomId);
    if (room === undefined) device.rooms.set(roomId, (room = new Map()));
    const fresh = new Map<string, string>();
    for (const [userId, eventId] of wanted) {
      if (room.get(userId) === eventId) continue;
      if (!room.has(userId)) device.size += 1;
      room.set(userId, eventId);
      fresh.set(userId, eventId);
    }
    return fresh;
  }

  /** Forgets what a device was sent: it starts anew, with an initial sync. */
  forget(deviceKey: string): void {
    this.#devices.delete(deviceKey);
  }
}
