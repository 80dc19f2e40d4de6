import { databaseMigrations } from '@rookery/database';
import type { OneTimeKeyService } from '@rookery/e2ee';
import { Config } from '@rookery/platform';
import type { EventSerializer, EventStore } from '@rookery/rooms';
import { eachDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { NamespacePattern } from '../registration/namespaces.js';
import { Registration } from '../registration/registration.js';
import type { RoomInterest } from './room-interest.js';
import { TransactionBodies } from './transaction-bodies.js';

const bot = '@ircbot:example.org';
const service = (extensions: boolean): Registration =>
  new Registration(
    {
      ...{ id: 'irc', url: 'http://x', asToken: 'a', hsToken: 'h', senderUserId: bot, rateLimited: true },
      namespaces: {
        users: [{ pattern: new NamespacePattern('@irc_.*'), exclusive: true }],
        aliases: [],
        rooms: [],
      },
      ...{ protocols: [], scopes: [], proxied: undefined, sources: undefined, extensions },
      ephemeral: { stable: false, unstable: false },
    },
    'example.org',
  );

eachDatabase('the keys that transactions count', (open) => {
  it('are those of every user of the service in a room, under both names', async () => {
    const test = await open();
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const ghosts = Array.from({ length: 150 }, (_, n) => `@irc_${n}:example.org`);
    const rows = [bot, ...ghosts, '@alice:example.org'].map((userId) => [userId, 'D']);
    await test.database.write((tx) => tx.insertMany('devices', ['user_id', 'device_id'], rows));
    const counts = { signed_curve25519: 3 };
    const bodies = new TransactionBodies(
      test.database,
      Config.fromObject({ experimental_features: { msc3202_transaction_extensions: true } }),
      { inOrder: async () => [{ event: { roomId: '!room' } }] } as unknown as EventStore,
      { serialize: async () => [] } as unknown as EventSerializer,
      { membersOf: async () => [new Set(['@alice:example.org', ...ghosts])] } as unknown as RoomInterest,
      { counts: async () => ({ counts, unusedFallbackTypes: ['x'] }) } as unknown as OneTimeKeyService,
    );
    const write = async (extensions: boolean): Promise<Record<string, object>> =>
      JSON.parse((await bodies.write(service(extensions), { eventIds: ['$event'] }, [])).json) as Record<
        string,
        object
      >;
    const told = await write(true);
    const counted = Object.fromEntries([bot, ...ghosts].map((userId) => [userId, { D: counts }]));
    expect(told['org.matrix.msc3202.device_one_time_keys_count']).toEqual(counted);
    expect(told['org.matrix.msc3202.device_one_time_key_counts']).toEqual(counted);
    expect(Object.keys(told['org.matrix.msc3202.device_unused_fallback_key_types'] ?? {}).length).toBe(151);
    expect(Object.keys(await write(false))).toEqual(['events']);
    await test.close();
  });
});
