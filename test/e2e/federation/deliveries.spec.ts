import type { FederatedEventDelivery } from '@rookery/module-api';
import { eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { join } from 'node:path';
import { probe } from '../modules/probe-server.js';
import { createRoom, databases, say, setState } from '../rooms/rooms-client.js';
import { FederationWorld, type PlayedServer } from './federation-world.js';
import { Visit } from './visiting-server.js';

const v1 = '/_matrix/federation/v1';
const part = encodeURIComponent;
const bob = '@bob:visitor.test';

describe.each(databases)('modules hear which events other servers got (%s)', (database) => {
  let world: FederationWorld;
  let home: TestHomeserver;
  let alice: TestUser;
  let visitor: PlayedServer;
  let roomId: string;
  let visit: Visit;

  beforeAll(async () => {
    world = await FederationWorld.create();
    const modules = [{ module: join(import.meta.dirname, '../modules/fixtures/probe.ts') }];
    home = await world.homeserver('home.test', { database, settings: { modules } });
    visitor = await world.played('visitor.test');
    // A server that refuses once is left alone for a minute.
    visitor.answer = ({ url }, response) =>
      void response.writeHead(url.includes('/v1/send/') ? 200 : 404).end('{"pdus":{}}');
    alice = await home.registerUser('alice');
    probe.reset();
    roomId = await createRoom(alice, { preset: 'public_chat' });
    visit = await Visit.join(visitor, home, roomId, bob);
  });
  afterAll(() => world?.stop());

  const deliveries = (): FederatedEventDelivery[] =>
    probe.fired
      .filter(({ name }) => name === 'onEventDeliveredOverFederation')
      .map(({ args }) => args[0] as FederatedEventDelivery);
  /** Ids by endpoint, of all calls. */
  const told = (method: string): string[] =>
    deliveries()
      .filter((each) => each.method === method)
      .flatMap(({ events }) => events.map(({ eventId }) => eventId));
  const ask = async (uri: string): Promise<void> => {
    expect((await visitor.request(home, 'GET', `${v1}${uri}`)).status).toBe(200);
  };

  it('by joining: the join, the state before it, and what that rests upon', async () => {
    await eventually(() => told('/send_join').length > 1);
    const events = deliveries().flatMap((each) => (each.method === '/send_join' ? each.events : []));
    expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['m.room.create', 'm.room.power_levels']));
    expect(events.filter(({ sender }) => sender === bob)).toHaveLength(1);
    expect(new Set(deliveries().map(({ serverName }) => serverName))).toEqual(new Set(['visitor.test']));
    // Whole ones, as they travel.
    for (const { pdu } of events) expect(pdu).toHaveProperty('signatures');
  });

  it('by asking', async () => {
    probe.reset();
    const first = await say(alice, roomId, 'one');
    const second = await say(alice, roomId, 'two');
    const topic = await setState(alice, roomId, 'm.room.topic', { topic: 'after' });
    const room = part(roomId);
    await ask(`/event/${part(first)}`);
    await ask(`/backfill/${room}?v=${part(second)}&limit=2`);
    await ask(`/event_auth/${room}/${part(topic)}`);
    await ask(`/state/${room}?event_id=${part(topic)}`);
    // Which names ids only.
    await ask(`/state_ids/${room}?event_id=${part(topic)}`);
    const range = { earliest_events: [first], latest_events: [topic], limit: 10 };
    await visitor.request(home, 'POST', `${v1}/get_missing_events/${room}`, range);
    await eventually(() => told('/get_missing_events').length > 0);
    expect(told('/event')).toEqual([first]);
    expect(told('/backfill')).toEqual([second, first]);
    expect(told('/get_missing_events')).toEqual([second]);
    expect(told('/event_auth')).not.toEqual([]);
    expect(told('/event_auth')).not.toContain(topic);
    expect(told('/state')).toEqual(expect.arrayContaining(told('/event_auth')));
  });

  it('by being sent them, and naming them as processed', async () => {
    const sent: string[] = [];
    visitor.answer = ({ url, body }, response) => {
      if (!url.includes('/v1/send/')) return void response.writeHead(404).end('{}');
      const events = (JSON.parse(body) as { pdus: unknown[] }).pdus.map((pdu) => visit.parse(pdu));
      sent.push(...events.map(({ eventId }) => eventId));
      const results = events.map((each) => [each.eventId, each.content['body'] === 'bad' ? { error: 'Not that' } : {}]);
      response.end(JSON.stringify({ pdus: Object.fromEntries(results) as unknown }));
    };
    const taken = await say(alice, roomId, 'taken');
    const refused = await say(alice, roomId, 'bad');
    const good = await say(alice, roomId, 'good');
    await eventually(() => told('/send').includes(good));
    expect(told('/send')).toContain(taken);
    expect(told('/send')).not.toContain(refused);
    expect(sent).toContain(refused);
  });
});
