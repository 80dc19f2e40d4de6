import { agree } from './agreement.js';
import { Federation } from './peers.js';
import { Person } from './person.js';

/** How often either side is killed while both are busy; ROOKERY_INTEROP_KILLS for another number. */
const kills = Number(process.env['ROOKERY_INTEROP_KILLS'] ?? 30);
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Whether it was acknowledged; a server that is not there acknowledges nothing. */
const acknowledged = (work: Promise<string>): Promise<string | undefined> => work.catch(() => undefined);

describe('a live Synapse and this server, both killed while they are busy', () => {
  // The harder case: a server of its own holds the rows; SQLite is killed by the crash tests.
  let federation: Federation;
  beforeAll(async () => {
    federation = await Federation.start('postgres');
  }, 400_000);
  afterAll(() => federation?.remove());

  it(
    `hold the same rooms after ${kills} kills of either side`,
    async () => {
      const { rookery, synapse } = federation;
      const rooms = await Promise.all(
        ['10', '11', '12'].map(async (version, n) => {
          const [home, away] = n % 2 === 0 ? [rookery, synapse] : [synapse, rookery];
          const [ann, bob] = [await Person.at(home, 'ann'), await Person.at(away, 'bob')];
          const roomId = await ann.createRoom({ preset: 'public_chat', room_version: version });
          await bob.join(roomId, home);
          await ann.seesMember(roomId, bob.userId, 'join');
          return { roomId, ann, bob, said: [] as string[] };
        }),
      );
      let busy = true;
      const work = rooms.flatMap((room) =>
        [room.ann, room.bob].map(async (person) => {
          for (let n = 0; busy; n++) {
            const id = await acknowledged(
              n % 10 === 9
                ? person.setState(room.roomId, 'org.example.state', { n }, person.userId.slice(1))
                : person.send(room.roomId, `${person.localpart} ${n}`),
            );
            if (id !== undefined) room.said.push(id);
            await sleep(id === undefined ? 200 : 60);
          }
        }),
      );
      for (let n = 0; n < 2 * kills; n++) {
        const victim = n % 2 === 0 ? rookery : synapse;
        await sleep(300 + ((n * 97) % 700));
        await victim.stop('SIGKILL');
        await sleep((n * 53) % 400);
        await victim.start();
      }
      busy = false;
      await Promise.all(work);
      for (const { roomId, ann, bob, said } of rooms) {
        await ann.send(roomId, 'is everything there?');
        await bob.send(roomId, 'let me see');
        const { events } = await agree(ann, bob, roomId);
        const held = new Set(events);
        expect(said.filter((id) => !held.has(id))).toEqual([]);
        expect(said.length).toBeGreaterThan(kills);
      }
    },
    240_000 + kills * 80_000,
  );
});
