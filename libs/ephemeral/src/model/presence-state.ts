/** Whether somebody is there. `busy` is MSC3026. */
export type PresenceName = 'online' | 'unavailable' | 'offline' | 'busy';

/** A user's presence as others see it. Times are milliseconds since the epoch, 0 for never. */
export interface PresenceState {
  readonly userId: string;
  readonly state: PresenceName;
  readonly lastActiveMs: number;
  readonly lastSyncMs: number;
  readonly lastFederationMs: number;
  readonly statusMsg: string | undefined;
  readonly currentlyActive: boolean;
}

/** The settings `presence.*`, milliseconds. */
export interface PresenceTimers {
  /** How long after an action somebody counts as currently active. */
  readonly activeMs: number;
  /** How long after the last sync somebody goes offline. */
  readonly syncGapMs: number;
  /** How long after the last action somebody becomes unavailable. */
  readonly idleMs: number;
}

/** What one device of a local user does. */
export interface DevicePresence {
  state: PresenceName;
  /** Syncs that wait right now. */
  syncing: number;
  lastSyncMs: number;
  lastActiveMs: number;
}

const weight: Readonly<Record<PresenceName, number>> = { offline: 0, unavailable: 1, online: 2, busy: 3 };

/** Nobody there, and nothing known. */
export function offlineState(userId: string): PresenceState {
  return {
    userId,
    state: 'offline',
    lastActiveMs: 0,
    lastSyncMs: 0,
    lastFederationMs: 0,
    statusMsg: undefined,
    currentlyActive: false,
  };
}

/** Whether a device still counts: it syncs, or did not long ago. */
export function isPresent(device: DevicePresence, nowMs: number, timers: PresenceTimers): boolean {
  return device.syncing > 0 || nowMs - device.lastSyncMs < timers.syncGapMs;
}

/**
 * A local user's presence from that of the devices: the most present one decides; who does nothing for a while is
 * unavailable.
 * @spec client-server-api#presence
 */
export function combine(
  before: PresenceState,
  devices: Iterable<DevicePresence>,
  nowMs: number,
  timers: PresenceTimers,
): PresenceState {
  let state: PresenceName = 'offline';
  let { lastActiveMs, lastSyncMs } = before;
  for (const device of devices) {
    lastActiveMs = Math.max(lastActiveMs, device.lastActiveMs);
    lastSyncMs = Math.max(lastSyncMs, device.lastSyncMs);
    if (!isPresent(device, nowMs, timers)) continue;
    const idle = device.state === 'online' && nowMs - device.lastActiveMs >= timers.idleMs;
    const shown = idle ? 'unavailable' : device.state;
    if (weight[shown] > weight[state]) state = shown;
  }
  const currentlyActive = (state === 'online' || state === 'busy') && nowMs - lastActiveMs < timers.activeMs;
  return { ...before, state, lastActiveMs, lastSyncMs, currentlyActive };
}

/** Whether others should be told. The time of the last action alone is no news. */
export function isNews(before: PresenceState, after: PresenceState): boolean {
  return (
    before.state !== after.state ||
    before.statusMsg !== after.statusMsg ||
    before.currentlyActive !== after.currentlyActive
  );
}

/** The content of an `m.presence` event, and the answer of the status endpoint. @spec client-server-api#mpresence */
export function presenceContent(presence: PresenceState, nowMs: number): Record<string, unknown> {
  const { state, lastActiveMs, statusMsg, currentlyActive } = presence;
  return {
    presence: state,
    ...(lastActiveMs > 0 ? { last_active_ago: Math.max(0, nowMs - lastActiveMs) } : {}),
    ...(statusMsg === undefined ? {} : { status_msg: statusMsg }),
    ...(state === 'online' ? { currently_active: currentlyActive } : {}),
  };
}
