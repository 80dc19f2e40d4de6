import { eventually } from '@rookery/testing';
import { databaseKinds } from '../support/server-process.js';
import { agree } from './agreement.js';
import { Federation, type Peer } from './peers.js';
import { patienceMs, Person } from './person.js';

/** What the other side has to fetch when somebody reads back to the beginning. */
const eventCount = 2000;
const atOnce = 8;

/** Says many things, some at once; ids of all. */
async function sayMany(person: Person, roomId: string, count: number, what: string): Promise<string[]> {
  const ids: string[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (next < count) ids.push(await person.send(roomId, `${what} ${next++}`));
    }),
  );
  return ids;
}

describe.each(databaseKinds)('history shared with a live Synapse (%s)', (database) => {
  let federation: Federation;
  beforeAll(async () => {
    federation = await Federation.start(database);
  }, 400_000);
  afterAll(() => federation?.remove());

  // Where the other server makes the events, one round shows what there is to see: it takes minutes for them.
  it.each(database === 'sqlite' ? (['rookery', 'synapse'] as const) : (['rookery'] as const))(
    `${eventCount} events of %s are read back to the beginning by somebody who joins late`,
    async (side) => {
      const [home, away]: readonly [Peer, Peer] =
        side === 'rookery' ? [federation.rookery, federation.synapse] : [federation.synapse, federation.rookery];
      const ann = await Person.at(home, 'ann');
      const bob = await Person.at(away, 'bob');
      const roomId = await ann.createRoom({ preset: 'public_chat' });
      const said = await sayMany(ann, roomId, eventCount, 'long ago');
      await bob.join(roomId, home);
      await ann.seesMember(roomId, bob.userId, 'join');
      const { events } = await agree(ann, bob, roomId);
      const held = new Set(events);
      expect(said.filter((id) => !held.has(id))).toEqual([]);
    },
    900_000,
  );

  it('an outage of an hour of either side ends with nothing missing', async () => {
    const { rookery, synapse } = federation;
    for (const [gone, stays] of [
      [synapse, rookery],
      [rookery, synapse],
    ] as const) {
      const ann = await Person.at(stays, 'ann');
      const bob = await Person.at(gone, 'bob');
      const roomId = await ann.createRoom({ preset: 'public_chat' });
      await bob.join(roomId, stays);
      await ann.seesMember(roomId, bob.userId, 'join');
      await bob.reads(roomId, await ann.send(roomId, 'before'));

      await gone.stop();
      const during = await sayMany(ann, roomId, 60, 'during');
      await ann.setState(roomId, 'm.room.topic', { topic: 'while you were away' });
      // An hour goes by for both.
      await stays.stop();
      for (const peer of [gone, stays]) peer.moveClock();
      await Promise.all([gone.start(), stays.start()]);

      const after = await ann.send(roomId, 'after');
      await bob.reads(roomId, after);
      await ann.reads(roomId, await bob.send(roomId, 'so much to read'));
      const { events } = await agree(ann, bob, roomId);
      const held = new Set(events);
      expect([...during, after].filter((id) => !held.has(id))).toEqual([]);
    }
  }, 600_000);

  it('what both sides did to a room while they could not hear each other comes to the same', async () => {
    const { rookery, synapse } = federation;
    const rooms = await Promise.all(
      ['6', '9', '10', '11', '12'].map(async (version, n) => {
        const [home, away] = n % 2 === 0 ? [rookery, synapse] : [synapse, rookery];
        const [ann, cat] = [await Person.at(home, 'ann'), await Person.at(home, 'cat')];
        const [bob, dan] = [await Person.at(away, 'bob'), await Person.at(away, 'dan')];
        const roomId = await ann.createRoom({ preset: 'public_chat', room_version: version });
        await cat.join(roomId);
        await bob.join(roomId, home);
        await ann.seesMember(roomId, bob.userId, 'join');
        await dan.join(roomId, home);
        await ann.seesMember(roomId, dan.userId, 'join');
        const levels = (await ann.state(roomId)).find((event) => event.type === 'm.room.power_levels')?.content ?? {};
        const users = { ...(levels['users'] as object), [bob.userId]: 100 };
        const granted = await ann.setState(roomId, 'm.room.power_levels', { ...levels, users });
        await bob.reads(roomId, granted);
        return { roomId, ann, bob, cat, dan, levels: { ...levels, users } };
      }),
    );

    // Nobody hears anybody: each is asked while the other is stopped, and is stopped before the other comes back.
    const half = async (peer: Peer): Promise<void> => {
      for (const { roomId, ann, bob, cat, dan, levels } of rooms) {
        const mine = ann.home === peer ? ann : bob;
        const [own, theirs] = mine === ann ? [cat, dan] : [dan, cat];
        await mine.setState(roomId, 'm.room.topic', { topic: `said by ${mine.localpart}` });
        await mine.setState(roomId, 'm.room.name', { name: `named by ${mine.localpart}` });
        await mine.act(roomId, 'ban', { user_id: theirs.userId });
        // Whoever the other side has banned meanwhile says nothing more: each server keeps that to itself, as it may.
        await mine.send(roomId, `${own.localpart} has to go`);
        await mine.setState(roomId, 'm.room.power_levels', { ...levels, events_default: mine === ann ? 1 : 2 });
        await mine.act(roomId, 'kick', { user_id: own.userId });
        await mine.send(roomId, 'done');
      }
    };
    await synapse.stop();
    await half(rookery);
    await rookery.stop();
    await synapse.start();
    await half(synapse);
    await rookery.start();

    for (const { roomId, ann, bob } of rooms) {
      // What both say afterwards joins the two halves.
      await eventually(async () => (await ann.ask('GET', `/rooms/${roomId}/state`)).status === 200, patienceMs);
      await ann.send(roomId, 'together again');
      await bob.send(roomId, 'indeed');
      await agree(ann, bob, roomId);
    }
  }, 600_000);
});
