import { type RoomEvent, SigningKey } from '@rookery/events';
import type { FederationClient, FederationRequest } from '@rookery/federation-client';
import { Config } from '@rookery/platform';
import { FakeClock, SeededIds } from '@rookery/testing';
import { type Handshake, MembershipHandshake } from './membership-handshake.js';

describe('what a server is waited for that takes an event', () => {
  const asked: FederationRequest[] = [];
  const client = {
    requestExactJson: async (request: FederationRequest) => {
      asked.push(request);
      return {};
    },
  } as unknown as FederationClient;
  const config = Config.fromObject({ 'federation.client_timeout': '40s' });
  const key = SigningKey.fromSeed('own', new Uint8Array(32));
  const handshake = new MembershipHandshake(client, key, new FakeClock(), new SeededIds(), config);
  const event = { roomId: '!r:far.test', eventId: '$e', pdu: {} } as unknown as RoomEvent;

  it.each<[Handshake, number, number]>([
    ['join', 120_000, 40_000],
    ['knock', 40_000, 40_000],
    ['leave', 15_000, 15_000],
  ])('a %s may take %i ms in all, in silence %i', async (kind, timeoutMs, silenceMs) => {
    await handshake.send(kind, 'far.test', event);
    expect(asked.at(-1)).toMatchObject({ timeoutMs, silenceMs, retries: 'none' });
  });
});
