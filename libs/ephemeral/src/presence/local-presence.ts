import {
  combine,
  type DevicePresence,
  isPresent,
  type PresenceName,
  type PresenceState,
  type PresenceTimers,
} from '../model/presence-state.js';

/** Devices of one user that are kept; the one seen longest ago goes first. */
const maxDevices = 50;
/** The device of requests without one, and of modules. */
const noDevice = '';

/** What the devices of local users do, in memory. */
export class LocalPresence {
  readonly #users = new Map<string, Map<string, DevicePresence>>();

  constructor(private readonly timers: () => PresenceTimers) {}

  /** A sync begins. @returns call it when the sync ends */
  syncing(userId: string, deviceId: string | undefined, nowMs: number): (endedAtMs: number) => void {
    const device = this.#device(userId, deviceId);
    device.syncing++;
    device.lastSyncMs = nowMs;
    let ended = false;
    return (endedAtMs) => {
      if (ended) return;
      ended = true;
      device.syncing--;
      device.lastSyncMs = endedAtMs;
    };
  }

  /** Whether a device that syncs with this state comes back, or changes its mind. No sync says that a user is not busy any more. */
  wouldChange(userId: string, deviceId: string | undefined, state: PresenceName, nowMs: number): boolean {
    const device = this.#users.get(userId)?.get(deviceId ?? noDevice);
    if (device === undefined || !isPresent(device, nowMs, this.timers())) return true;
    return device.state !== state && device.state !== 'busy';
  }

  /** A device syncs, or did a moment ago. @returns whether it is known; without that nothing changes */
  seen(userId: string, deviceId: string | undefined, nowMs: number, seenAtMs: number): boolean {
    const device = this.#users.get(userId)?.get(deviceId ?? noDevice);
    if (device === undefined || !isPresent(device, nowMs, this.timers())) return false;
    device.lastSyncMs = Math.max(device.lastSyncMs, seenAtMs);
    return true;
  }

  /** Its user did something. Who wants to be seen as offline stays so. @returns whether the device had said something else */
  active(userId: string, deviceId: string | undefined, nowMs: number): boolean {
    const device = this.#device(userId, deviceId);
    const said = device.state;
    device.lastActiveMs = nowMs;
    device.lastSyncMs = nowMs;
    if (device.state === 'unavailable') device.state = 'online';
    return said !== device.state;
  }

  /** The user says it. @returns whether the device had said something else; that it is `offline` nothing says but this */
  set(userId: string, deviceId: string | undefined, state: PresenceName, nowMs: number): boolean {
    const device = this.#device(userId, deviceId);
    const said = device.state;
    device.state = state;
    device.lastSyncMs = nowMs;
    if (state === 'online' || state === 'busy') device.lastActiveMs = nowMs;
    return said !== 'offline' && said !== state;
  }

  /** After a restart: as it was, by some device that we do not know. */
  restore(state: PresenceState, nowMs: number): void {
    const device = this.#device(state.userId, undefined);
    device.state = state.state;
    device.lastSyncMs = nowMs;
    device.lastActiveMs = state.lastActiveMs;
  }

  /** The user's presence now. */
  combined(before: PresenceState, nowMs: number): PresenceState {
    return combine(before, this.#users.get(before.userId)?.values() ?? [], nowMs, this.timers());
  }

  forget(userId: string): void {
    this.#users.delete(userId);
  }

  /** Forgets devices that are gone. */
  sweep(nowMs: number): void {
    for (const [userId, devices] of this.#users) {
      for (const [deviceId, device] of devices) if (!isPresent(device, nowMs, this.timers())) devices.delete(deviceId);
      if (devices.size === 0) this.#users.delete(userId);
    }
  }

  #device(userId: string, deviceId = noDevice): DevicePresence {
    let devices = this.#users.get(userId);
    if (!devices) this.#users.set(userId, (devices = new Map<string, DevicePresence>()));
    let device = devices.get(deviceId);
    if (!device) {
      const [oldest] = devices.keys();
      if (devices.size >= maxDevices && oldest !== undefined) devices.delete(oldest);
      device = { state: 'offline', syncing: 0, lastSyncMs: -Infinity, lastActiveMs: 0 };
      devices.set(deviceId, device);
    }
    return device;
  }
}
