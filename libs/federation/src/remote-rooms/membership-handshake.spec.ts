import { type RoomEvent, roomVersionRules, SigningKey } from '@rookery/events';
import type { FederationClient, FederationRequest } from '@rookery/federation-client';
import { Config } from '@rookery/platform';
import { FakeClock, SeededIds } from '@rookery/testing';
import { Readable } from 'node:stream';
import { type Handshake, MembershipHandshake } from './membership-handshake.js';
import type { ToldJoin } from './told-join.js';

describe('what a server is waited for that takes an event', () => {
  const asked: FederationRequest[] = [];
  const client = {
    requestExactJson: async (request: FederationRequest) => {
      asked.push(request);
      return {};
    },
    stream: async (request: FederationRequest) => {
      asked.push(request);
      return { body: Readable.from([Buffer.from('{"state":[],"auth_chain":[]}')]) };
    },
  } as unknown as FederationClient;
  const config = Config.fromObject({ 'federation.client_timeout': '40s' });
  const key = SigningKey.fromSeed('own', new Uint8Array(32));
  const handshake = new MembershipHandshake(client, key, new FakeClock(), new SeededIds(), config);
  const own = {
    type: 'm.room.member',
    stateKey: '@a:home.test',
    sender: '@a:home.test',
    content: { membership: 'join' },
  };
  const event = {
    ...own,
    roomId: '!r:far.test',
    eventId: '$e',
    pdu: {},
    rules: roomVersionRules('11'),
  } as unknown as RoomEvent;

  it.each<[Handshake, number, number]>([
    ['join', 120_000, 40_000],
    ['knock', 40_000, 40_000],
    ['leave', 15_000, 15_000],
  ])('a %s may take %i ms in all, in silence %i', async (kind, timeoutMs, silenceMs) => {
    if (kind === 'join') await ((await handshake.join('far.test', event, false)) as ToldJoin).close();
    else await handshake.send(kind, 'far.test', event);
    expect(asked.at(-1)).toMatchObject({ timeoutMs, silenceMs, retries: 'none' });
  });

  it('a join may be answered with as much as the rooms have that the settings allow', async () => {
    const [small, large] = [undefined, 1_000_000].map((count) => {
      const settings = Config.fromObject(count === undefined ? {} : { 'federation.max_state_events': count });
      return new MembershipHandshake(client, key, new FakeClock(), new SeededIds(), settings);
    });
    const sizes: (number | undefined)[] = [];
    for (const one of [small!, large!]) {
      await ((await one.join('far.test', event, false)) as ToldJoin).close();
      sizes.push(asked.at(-1)?.maxBytes);
    }
    expect(sizes).toEqual([268_500_000, 1_074_000_000]);
  });
});
