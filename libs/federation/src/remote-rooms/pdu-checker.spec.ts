import {
  type KnownKey,
  parsePdu,
  type RoomEvent,
  roomVersionRules,
  signEvent,
  SigningKey,
  verifyEventSignatures,
} from '@rookery/events';
import type { KeyRing } from '@rookery/federation-client';
import { SilentLogger } from '@rookery/platform';
import type { EventStore } from '@rookery/rooms';
import { PduChecker } from './pdu-checker.js';
import { StateEvents } from './state-events.fixture.js';

const keys = new Map(
  ['home.test', 'far.test'].map((name, n) => [name, SigningKey.fromSeed('1', new Uint8Array(32).fill(n))]),
);
const keyRing = {
  verifyEvents: (events: readonly RoomEvent[]) =>
    Promise.all(
      events.map((event) =>
        verifyEventSignatures(event, (server): KnownKey | undefined => {
          const key = keys.get(server)?.verifyKey;
          return key && { key, validUntilTs: Number.MAX_SAFE_INTEGER };
        }),
      ),
    ),
} as unknown as KeyRing;
const nothingStored = { many: async () => new Map() } as unknown as EventStore;

describe.each(['3', '10', '11', '12'])('what a server gives out as events of a room of version %s', (version) => {
  const rules = roomVersionRules(version)!;
  const checker = new PduChecker(keyRing, nothingStored, new SilentLogger());
  const alice = '@alice:home.test';
  const made = new StateEvents(version, alice, '!r:home.test');
  const signedBy = (server: string, event: RoomEvent): RoomEvent => signEvent(event, server, keys.get(server)!);
  const create = signedBy('home.test', made.create());
  const founder = signedBy('home.test', made.make('m.room.member', alice, { membership: 'join' }, [create]));
  const { roomId } = founder;
  /** An invite by alice, made by whoever likes. */
  const invite = (content: RoomEvent['content'], change: object = {}): RoomEvent => {
    const { pdu } = made.make('m.room.member', '@eve:far.test', { membership: 'invite', ...content }, [
      create,
      founder,
    ]);
    return parsePdu({ ...pdu, sender: alice, ...change }, rules, { roomId });
  };
  const soundOf = (...events: readonly RoomEvent[]): Promise<RoomEvent[]> =>
    checker.sound(
      [create, founder, ...events].map(({ pdu }) => pdu),
      rules,
      roomId,
    );

  const changed = { hashes: { sha256: 'A'.repeat(43) } };

  it('is sound where their servers have signed it, without what was changed on the way', async () => {
    const honest = signedBy('home.test', invite({ reason: 'x' }, changed));
    const sound = await soundOf(honest);
    expect(sound.map(({ eventId }) => eventId)).toEqual([create, founder, honest].map(({ eventId }) => eventId));
    expect(sound.map(({ content }) => content)).toEqual([create.content, founder.content, { membership: 'invite' }]);
  });

  // From version 11 on an object stays, empty, and the invite is refused for it by the auth rules.
  it.each(Number(version) < 11 ? [{}, 'x'] : ['x'])('is not where an invite loses its excuse (%j)', async (excuse) => {
    const forged = invite({ third_party_invite: excuse }, changed);
    for (const each of [forged, signedBy('far.test', forged)])
      expect(await soundOf(each)).toEqual([create, founder].map(({ eventId }) => expect.objectContaining({ eventId })));
  });
});
