import { Config, Lifecycle, SilentLogger, SystemClock, SystemIds } from '@rookery/platform';
import { type Database } from '@rookery/database';
import { Invalidations, LeasedRoles, Notifier, Streams, StreamWriters, WorkSharing } from '@rookery/replication';
import { eventually, MemoryProcesses } from '@rookery/testing';
import type { AppserviceRegistry, ServiceWatcher } from '../registration/appservice-registry.js';
import { ServiceRouter } from './service-router.js';
import type { Care, ServiceSenders, ServiceTask } from './service-senders.js';

const ids = ['bot', 'xmpp', 'irc', 'other', 'mail'];

interface Member {
  readonly router: ServiceRouter;
  readonly lifecycle: Lifecycle;
  readonly roles: LeasedRoles;
  /** What senders were told, and for which services they looked. */
  readonly told: ServiceTask[];
  readonly care: () => Care;
  readonly watcher: () => ServiceWatcher;
}

describe('tasks for application services', () => {
  let network: MemoryProcesses;
  let members: Member[];

  beforeEach(() => {
    network = new MemoryProcesses();
    members = [];
  });
  afterEach(async () => {
    for (const { lifecycle, roles } of members) {
      await roles.stop();
      await lifecycle.stop();
    }
  });

  const begin = async (services: readonly string[] = ids): Promise<Member> => {
    const instance = members.length === 0 ? 'main' : `p${members.length}`;
    const { bus, rpc, leases } = network.connect(instance);
    const [clock, logger, isWriter] = [new SystemClock(), new SilentLogger(), members.length === 0];
    const roles = new LeasedRoles({
      ...{ rpc, leases, instance, clock, logger, isWriter },
      eagernessOf: () => (isWriter ? 'spare' : 'wanted'),
    });
    const notifier = new Notifier(clock, bus, { instance });
    const invalidations = new Invalidations(notifier);
    const writers = new StreamWriters(instance, {}, 'main');
    const config = Config.fromObject({ server_name: 'home.test' });
    const streams = new Streams({} as Database, notifier, { writers, rpc, config });
    const lifecycle = new Lifecycle(clock, logger, !isWriter);
    const told: ServiceTask[] = [];
    const sending = new Set<string>();
    let care: Care | undefined;
    let watcher: ServiceWatcher | undefined;
    const senders = {
      lookAfter: (given: Care) => void (care = given),
      has: (asId: string) => sending.has(asId),
      take: (task: ServiceTask) => void (care!.isOurs(task.asId) && told.push(task)),
      catchUp: (isWanted: (asId: string) => boolean) => {
        for (const id of services) if (isWanted(id)) sending.add(id);
        return Promise.resolve();
      },
      letGo: () => {
        for (const id of sending) if (!care!.isOurs(id)) sending.delete(id);
        return Promise.resolve();
      },
      stop: () => Promise.resolve(),
    };
    const registry = {
      all: services.map((id) => ({ id, fields: { url: 'http://x' } })),
      watch: (given: ServiceWatcher) => void (watcher = given),
    };
    const router = new ServiceRouter(
      new WorkSharing({ roles, rpc, bus, streams, invalidations, clock, logger, ids: new SystemIds() }),
      senders as unknown as ServiceSenders,
      registry as unknown as AppserviceRegistry,
      ...([rpc, streams, clock, lifecycle] as const),
    );
    router.onModuleInit();
    await lifecycle.start();
    if (isWriter) router.open();
    await roles.start();
    const member = { router, lifecycle, roles, told, care: () => care!, watcher: () => watcher! };
    members.push(member);
    return member;
  };
  const holdersOf = (asId: string): Member[] => members.filter(({ care }) => care().maySend(asId));
  const shared = (...by: Member[]): Promise<unknown> =>
    eventually(() => ids.every((id) => holdersOf(id).length === 1 && by.includes(holdersOf(id)[0]!)));
  const alive = ({ told }: Member, asId: string): number[] =>
    told.flatMap((task) => (task.kind === 'life' && task.asId === asId ? [task.afterMs] : []));

  it('go to whoever has the service', async () => {
    const writer = await begin();
    await shared(writer);
    const others = [await begin(), await begin()];
    await shared(...others);
    await eventually(() => {
      for (const asId of ids) writer.router.tell({ kind: 'edu', asId, edu: { type: 'm.typing' } });
      return others.flatMap(({ told }) => told.map(({ asId }) => asId)).length >= ids.length;
    });
    for (const { told, care } of others) for (const { asId } of told) expect(care().isOurs(asId)).toBe(true);
    expect(writer.told.length).toBe(0);
  });

  it('say that a service has shown itself, whichever process has seen it', async () => {
    const writer = await begin();
    const others = [await begin(), await begin()];
    await shared(...others);
    const [asId = ''] = ids;
    const [holder] = holdersOf(asId);
    for (const { watcher } of members) {
      const before = alive(holder!, asId).length;
      await eventually(() => {
        // Until the process that writes knows who has it nobody is told; a service at work shows itself again.
        watcher().seen(asId);
        return alive(holder!, asId).length > before;
      });
    }
    expect(alive(holder!, asId).every((afterMs) => afterMs === 10_000)).toBe(true);
    writer.watcher().reached(asId);
    await eventually(() => alive(holder!, asId).includes(0));
  });

  it('are not shared where there are no services', async () => {
    const writer = await begin([]);
    writer.router.tell({ kind: 'stored', asId: 'bot' });
    expect([writer.told, writer.roles.holdsAny('appservice_sender'), writer.care()]).toEqual([[], true, undefined]);
  });
});
