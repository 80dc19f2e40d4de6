import { Cache, type Config } from '@rookery/platform';

/** Members of all devices together; a device counts as some more. */
const maxMembers = 5_000_000;
const membersOfDevice = 50;
const maxMembersPerDevice = 50_000;

/** Which member events a device has been sent, by room and user. */
type SentMembers = Map<string, Map<string, string>>;

interface Device {
  readonly confirmed: SentMembers;
  size: number;
  /** What the last answer brought, and which one it was: it counts once the device comes back from there. */
  pending: { readonly answer: number; readonly sent: SentMembers; readonly anew: Set<string> } | undefined;
}

/**
 * Remembers per device which member events it was sent while it lazy-loads members, so that they are not sent again. What
 * went with an answer that got lost is sent once more. Losing an entry only means sending an event twice.
 * @spec client-server-api#lazy-loading-room-members
 */
export class LazyMemberMemory {
  readonly #devices: Cache<string, Device>;

  constructor(config: Config) {
    this.#devices = new Cache(config, 'lazy_loaded_members', {
      ...{ invalidation: 'never', max: 2 * maxMembers },
      sizeOf: ({ size }) => size + membersOfDevice,
    });
  }

  /** The device comes back with what this answer gave it: that one has arrived, a later one has not. */
  confirm(deviceKey: string, answer: number): void {
    const device = this.#devices.get(deviceKey);
    if (device?.pending === undefined) return;
    const { sent, anew } = device.pending;
    const hasArrived = device.pending.answer === answer;
    device.pending = undefined;
    if (!hasArrived) return;
    for (const roomId of anew) {
      device.size -= device.confirmed.get(roomId)?.size ?? 0;
      device.confirmed.delete(roomId);
    }
    for (const [roomId, members] of sent) {
      const room = roomOf(device.confirmed, roomId);
      for (const [userId, eventId] of members) {
        if (!room.has(userId)) device.size += 1;
        room.set(userId, eventId);
      }
    }
    if (device.size > maxMembersPerDevice) this.#devices.delete(deviceKey);
    else this.#devices.set(deviceKey, device);
  }

  /**
   * The members of `wanted` (user id to member event id) that the device does not have yet.
   * @param answer names the answer that brings them: by where in the events it ends, or by a number of its own
   * @param options.anew the device is told of the room as if for the first time: what it had of it does not count
   */
  take(
    deviceKey: string,
    roomId: string,
    wanted: ReadonlyMap<string, string>,
    answer: number,
    { anew = false }: { readonly anew?: boolean } = {},
  ): ReadonlyMap<string, string> {
    let device = this.#devices.get(deviceKey);
    if (device === undefined) {
      // Of a device that has none, nothing is to be forgotten.
      if (wanted.size === 0) return new Map();
      this.#devices.set(deviceKey, (device = { confirmed: new Map(), size: 0, pending: undefined }));
    }
    const known = anew ? undefined : device.confirmed.get(roomId);
    const fresh = new Map<string, string>();
    for (const [userId, eventId] of wanted) if (known?.get(userId) !== eventId) fresh.set(userId, eventId);
    if (fresh.size === 0 && !anew) return fresh;
    if (device.pending?.answer !== answer) device.pending = { answer, sent: new Map(), anew: new Set() };
    if (anew) device.pending.anew.add(roomId);
    const sent = device.pending.sent.get(roomId);
    if (sent === undefined) device.pending.sent.set(roomId, fresh);
    else for (const [userId, eventId] of fresh) sent.set(userId, eventId);
    return fresh;
  }

  /** Forgets what a device was sent: it starts anew, with an initial sync. */
  forget(deviceKey: string): void {
    this.#devices.delete(deviceKey);
  }
}

function roomOf(sent: SentMembers, roomId: string): Map<string, string> {
  let room = sent.get(roomId);
  if (room === undefined) sent.set(roomId, (room = new Map()));
  return room;
}
