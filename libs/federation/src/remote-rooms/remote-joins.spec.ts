import type { RoomEvent } from '@rookery/events';
import { FederationRequestError, type KeyRing, type RetryPlan } from '@rookery/federation-client';
import { SilentLogger } from '@rookery/platform';
import type { EventPersister, InboundEvents, RoomStateReader } from '@rookery/rooms';
import { eventually } from '@rookery/testing';
import type { Candidates } from './candidates.js';
import type { MembershipHandshake } from './membership-handshake.js';
import { RemoteJoins } from './remote-joins.js';
import type { RemoteState } from './remote-state.js';
import type { StoredStates } from './stored-states.js';

describe('joins through other servers', () => {
  // Where few are under way an answer may grow while it comes; the others are asked for once more.
  it.each([
    ['shows beforehand', 0],
    ['shows while they come', 2],
  ])('have few answers of the largest size at once, where that %s', async (_, grown) => {
    const prepared: RoomEvent[] = [];
    const sent: { event: RoomEvent; huge: boolean }[] = [];
    let [now, most] = [0, 0];
    const ends: (() => void)[] = [];
    const handshake = {
      prepare: async (_: string, __: string, room: { roomId: string }) => {
        const event = { roomId: room.roomId, content: {}, rules: { version: '11' } } as unknown as RoomEvent;
        prepared.push(event);
        return event;
      },
      join: async (server: string, event: RoomEvent, huge: boolean, mayGrow: () => boolean) => {
        sent.push({ event, huge });
        if (!huge && !(grown > 0 && mayGrow())) throw new FederationRequestError(server, 'too_large', 'too large');
        return {};
      },
    } as unknown as MembershipHandshake;
    const candidates = {
      first: (servers: string[], task: (server: string, retries: RetryPlan) => Promise<void>) =>
        task(servers[0]!, 'none'),
    } as unknown as Candidates;
    const inbound = {
      receive: async () => {
        most = Math.max(most, ++now);
        await new Promise<void>((resolve) => ends.push(resolve));
        now--;
        return { kind: 'accepted' };
      },
    } as unknown as InboundEvents;
    const state = { currentEvent: async () => undefined } as unknown as RoomStateReader;
    const joins = new RemoteJoins(
      ...([candidates, handshake, {} as RemoteState, {} as KeyRing, {} as EventPersister] as const),
      ...([inbound, state, {} as StoredStates, new SilentLogger()] as const),
    );
    const all = Array.from({ length: 5 }, (_, i) =>
      joins.joinAuthorised(`@u${i}:home.test`, `!r${i}`, ['far.test'], {}),
    );
    await eventually(() => ends.length >= 2);
    for (let ended = 0; ended < 5; ended++) {
      await eventually(() => ends.length > ended);
      ends[ended]!();
    }
    await Promise.all(all);
    expect(most).toBe(2);
    // The event that was refused for its answer is handed over again, and no other.
    expect(prepared).toHaveLength(5);
    for (const [index, event] of prepared.entries())
      expect(sent.filter((each) => each.event === event).map(({ huge }) => huge)).toEqual(
        index < grown ? [false] : [false, true],
      );
  });
});
