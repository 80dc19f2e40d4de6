import { databaseMigrations } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import type { Signatures } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, testServer } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { EventStore } from '../store/event-store.js';
import { eventResigning } from './event-resigning.update.js';

eachDatabase('signing events anew', (open) => {
  it('is seen by those who read an event just before it is committed', async () => {
    const clock = new FakeClock();
    const test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const rooms = await buildRooms({ database: test.database, clock });
    const alice = requesterOf('alice');
    const { roomId } = await rooms.get(RoomCreation).create(alice, {});
    const content = { msgtype: 'm.text', body: 'x' };
    const { eventId } = await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content });
    const events = rooms.get(EventStore);
    const keysOf = async (): Promise<string[]> => {
      const stored = await events.one(eventId);
      return Object.keys((stored?.event.pdu['signatures'] as Signatures)[testServer] ?? {});
    };
    const old = rooms.get(SigningKey);
    const key = SigningKey.generate('new');
    const update = eventResigning({ serverName: testServer, key, events });
    const progress = { old_key_id: old.keyId, old_key: old.publicKey };
    await test.database.write(async (tx) => {
      await update.run({ tx, progress, batchSize: 100 });
      expect(await keysOf()).toEqual([old.keyId]);
    });
    expect(await keysOf()).toEqual([key.keyId]);
    await rooms.close();
  });
});
