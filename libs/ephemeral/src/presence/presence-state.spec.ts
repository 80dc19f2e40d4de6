import { LocalPresence } from './local-presence.js';
import {
  combine,
  type DevicePresence,
  offlineState,
  presenceContent,
  type PresenceState,
} from '../model/presence-state.js';

const timers = { activeMs: 60_000, syncGapMs: 30_000, idleMs: 300_000 };
const now = 10_000_000;
const before = offlineState('@a:b');

const device = (more: Partial<DevicePresence>): DevicePresence => ({
  state: 'online',
  syncing: 0,
  lastSyncMs: now,
  lastActiveMs: now,
  ...more,
});
const stateOf = (...devices: DevicePresence[]): PresenceState => combine(before, devices, now, timers);

describe('presence of devices', () => {
  it('is offline without devices, and once none has synced for a while', () => {
    expect(stateOf().state).toBe('offline');
    expect(stateOf(device({ lastSyncMs: now - 30_000 })).state).toBe('offline');
    expect(stateOf(device({ lastSyncMs: now - 29_999 })).state).toBe('online');
    expect(stateOf(device({ lastSyncMs: now - 90_000, syncing: 1 })).state).toBe('online');
  });

  it('is unavailable when nothing was done for long', () => {
    expect(stateOf(device({ lastActiveMs: now - 300_000 })).state).toBe('unavailable');
    expect(stateOf(device({ lastActiveMs: now - 299_999 })).state).toBe('online');
  });

  it('is that of the most present device', () => {
    expect(stateOf(device({ state: 'unavailable' }), device({})).state).toBe('online');
    expect(stateOf(device({ state: 'busy' }), device({})).state).toBe('busy');
    expect(stateOf(device({ state: 'offline' }), device({ state: 'unavailable' })).state).toBe('unavailable');
  });

  it('is currently active for a minute after an action', () => {
    expect(stateOf(device({ lastActiveMs: now - 59_999 })).currentlyActive).toBe(true);
    expect(stateOf(device({ lastActiveMs: now - 60_000 })).currentlyActive).toBe(false);
    expect(stateOf(device({ state: 'unavailable' })).currentlyActive).toBe(false);
  });

  it('goes on the wire with what is known', () => {
    expect(presenceContent(before, now)).toEqual({ presence: 'offline' });
    expect(presenceContent({ ...stateOf(device({ lastActiveMs: now - 5 })), statusMsg: 'here' }, now)).toEqual({
      presence: 'online',
      last_active_ago: 5,
      status_msg: 'here',
      currently_active: true,
    });
  });
});

describe('devices of local users', () => {
  it('change by a sync when they come back or change their mind', () => {
    const local = new LocalPresence(() => timers);
    const would = (state: 'online' | 'unavailable', atMs: number) => local.wouldChange('@a:b', 'D', state, atMs);
    expect(would('online', now)).toBe(true);
    const end = local.syncing('@a:b', 'D', now);
    local.set('@a:b', 'D', 'online', now);
    expect(would('online', now + 90_000)).toBe(false);
    expect(would('unavailable', now)).toBe(true);
    end(now + 90_000);
    end(now + 200_000);
    expect(would('online', now + 100_000)).toBe(false);
    expect(would('online', now + 120_000)).toBe(true);
    // A sync alone is no action.
    expect(local.combined(before, now + 100_000).lastActiveMs).toBe(now);
  });

  it('are online again once their user does something, but never where they are not to be seen', () => {
    const local = new LocalPresence(() => timers);
    const shown = (): PresenceState => local.combined(before, now);
    local.active('@a:b', 'D', now);
    expect(shown()).toMatchObject({ state: 'offline', lastActiveMs: now });
    expect(local.wouldChange('@a:b', 'D', 'online', now)).toBe(true);
    local.set('@a:b', 'D', 'unavailable', now);
    expect(local.active('@a:b', 'D', now)).toBe(true);
    expect(shown().state).toBe('online');
    local.set('@a:b', 'D', 'offline', now);
    expect(local.active('@a:b', 'D', now)).toBe(false);
    expect(shown().state).toBe('offline');
    local.set('@a:b', 'D', 'busy', now);
    expect(local.active('@a:b', 'D', now)).toBe(false);
    expect(shown().state).toBe('busy');
  });

  it('are busy until the user says otherwise or they are gone, whatever they sync with', () => {
    const local = new LocalPresence(() => timers);
    local.syncing('@a:b', 'D', now)(now);
    local.set('@a:b', 'D', 'busy', now);
    expect(local.wouldChange('@a:b', 'D', 'online', now)).toBe(false);
    expect(local.wouldChange('@a:b', 'D', 'online', now + 29_999)).toBe(false);
    expect(local.wouldChange('@a:b', 'D', 'online', now + 30_000)).toBe(true);
    local.set('@a:b', 'D', 'online', now);
    expect(local.combined(before, now).state).toBe('online');
  });

  it('are kept in bounded number', () => {
    const local = new LocalPresence(() => timers);
    local.set('@a:b', 'BUSY', 'busy', now);
    for (let i = 0; i < 50; i++) local.set('@a:b', `D${i}`, 'online', now);
    expect(local.combined(before, now).state).toBe('online');
  });
});
