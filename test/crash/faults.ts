import type { Cluster, Member } from './cluster.js';
import { pick } from '../support/random.js';

/** Something that happens to a server of several processes. It lasts until what it returns is called. */
export interface Fault {
  readonly name: string;
  /** Whether the process that writes is lost by it at once. */
  readonly endsWriter: boolean;
  /** @returns how to end it; {@link Cluster.mend} does the rest */
  readonly happen: (cluster: Cluster, random: () => number) => Promise<() => Promise<void>>;
}

const nothing = (): Promise<void> => Promise.resolve();

const onWriter = async (cluster: Cluster, harm: (member: Member) => unknown): Promise<() => Promise<void>> => {
  const member = await cluster.writer();
  if (member === undefined) throw new Error('No process writes');
  await harm(member);
  return nothing;
};

const onOther = async (
  cluster: Cluster,
  random: () => number,
  harm: (member: Member) => unknown,
): Promise<() => Promise<void>> => {
  const writer = await cluster.writer();
  const member = pick(
    cluster.members.filter((one) => one !== writer),
    random,
  );
  if (member) await harm(member);
  return nothing;
};

/** What goes wrong in a machine room, as far as it can be had on one machine. */
export const faults: readonly Fault[] = [
  {
    ...{ name: 'the one that writes is killed', endsWriter: true },
    happen: (cluster) => onWriter(cluster, ({ process }) => process.stop('SIGKILL')),
  },
  {
    ...{ name: 'the one that writes is stopped in order', endsWriter: true },
    happen: (cluster) => onWriter(cluster, ({ process }) => process.stop('SIGTERM')),
  },
  {
    ...{ name: 'the one that writes is paused', endsWriter: true },
    happen: (cluster) => onWriter(cluster, ({ process }) => process.signal('SIGSTOP')),
  },
  {
    ...{ name: 'the line of the one that writes to PostgreSQL breaks', endsWriter: true },
    happen: (cluster) => onWriter(cluster, ({ toPostgres }) => toPostgres.break()),
  },
  {
    ...{ name: 'the line of the one that writes to PostgreSQL falls silent', endsWriter: true },
    happen: (cluster) => onWriter(cluster, ({ toPostgres }) => toPostgres.silence()),
  },
  {
    ...{ name: 'another one is killed', endsWriter: false },
    happen: (cluster, random) => onOther(cluster, random, ({ process }) => process.stop('SIGKILL')),
  },
  {
    ...{ name: 'another one is paused', endsWriter: false },
    happen: (cluster, random) => onOther(cluster, random, ({ process }) => process.signal('SIGSTOP')),
  },
  {
    ...{ name: 'the line of another one to PostgreSQL falls silent', endsWriter: false },
    happen: (cluster, random) => onOther(cluster, random, ({ toPostgres }) => toPostgres.silence()),
  },
  {
    ...{ name: 'the line of the one that writes to Redis falls silent', endsWriter: false },
    happen: (cluster) => onWriter(cluster, ({ toRedis }) => toRedis.silence()),
  },
  {
    ...{ name: 'the line of another one to Redis falls silent', endsWriter: false },
    happen: (cluster, random) => onOther(cluster, random, ({ toRedis }) => toRedis.silence()),
  },
  {
    ...{ name: 'Redis crashes', endsWriter: false },
    async happen({ redis }) {
      await redis.down();
      return () => redis.up();
    },
  },
  {
    ...{ name: 'PostgreSQL crashes', endsWriter: false },
    async happen({ postgres }) {
      await postgres.crash();
      return () => postgres.recover();
    },
  },
  {
    ...{ name: 'all are killed', endsWriter: true },
    async happen({ members }) {
      await Promise.all(members.map(({ process }) => process.stop('SIGKILL')));
      return nothing;
    },
  },
];
