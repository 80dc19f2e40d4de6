import { createHmac } from 'node:crypto';
import {
  checkServable,
  claimDatabases,
  type DatabaseClaim,
  joinProcesses,
  migrate,
  openDatabase,
  pendingMigrations,
  type PostgresOptions,
  type ProcessRegistry,
  type ProcessView,
  readSchemaState,
  runningProcesses,
  type Tx,
} from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { ProcessAddress } from '@rookery/http';
import {
  canSpeak,
  type Config,
  type Ids,
  type Logger,
  processProtocol,
  Semaphore,
  SystemClock,
  SystemIds,
} from '@rookery/platform';
import { defineRpc, HttpRpc, instanceOf, RedisBus, type RpcAddress, writerLease } from '@rookery/replication';
import { Homeserver, type HomeserverOverrides } from '../create-homeserver.js';
import { checkShareable, databaseOptions, stateDatabaseOptions } from '../database-options.js';
import { migrations } from '../schema.js';
import { loadSigningKeys } from '../signing-keys.js';
import { StartupError } from '../startup-error.js';
import { version } from '../version.js';
import { redisOptions } from './redis-options.js';

/** How a process takes part. */
export interface AmongOptions {
  /** Unique among the processes that run. */
  readonly name: string;
  /** Whether it may become the one that writes. */
  readonly canWrite: boolean;
  /** The address at which the others reach it. */
  readonly host: string;
  /** Whether what they say to it is encrypted. */
  readonly encrypted: boolean;
  /** Other processes of this machine listen on the same ports. */
  readonly sharesPorts?: boolean | undefined;
  readonly logger: Logger;
  /** Ends a start that is under way: it is rejected, and leaves nothing behind. */
  readonly signal?: AbortSignal | undefined;
  /** Told of each server that begins, before it starts. */
  readonly onServer?: ((server: Homeserver) => void) | undefined;
}

/** What a process tells the others, in its row. */
interface Addresses {
  /** The version that it speaks between processes; of older programs, its `rpc` says it. */
  readonly protocol?: number | undefined;
  /** Absent until it listens. */
  readonly rpc?: RpcAddress | undefined;
  /** The newest version of the schema that its program knows. Programs that do not say it know the first. */
  readonly schema?: number | undefined;
  /** Where it takes requests that others pass on; only of the process that writes, once it does. */
  readonly fellows?: ProcessAddress | undefined;
}

/** What the others must know of this program before it does anything. */
const ownVersions = {
  schema: Math.max(...migrations.map((migration) => migration.version)),
  protocol: processProtocol,
};

/** The lease of the process that writes is also that one's name in calls and announcements, whichever it is. */
const writer = writerLease;

/** From this version between processes on, the one that writes takes what others write of streams that any may write. */
const sharingSince = 5;

/** How long a start waits for a process that holds the place of the one that writes and does not answer, milliseconds: one that has ended is replaced sooner. */
const deadWriterMs = 60_000;

const catchUp = defineRpc<undefined, void>('catch_up');
const othersLookAgain = defineRpc<undefined, void>('look_at_processes');

/**
 * A process of a server that has several: it takes the place of the one that writes when that is free, and a place beside it otherwise. A
 * place is for the whole life of a server in it; whoever takes another begins a new one.
 */
export class AmongProcesses {
  /** Resolves with the reason when the process has lost its right to write: it must end. Otherwise open for ever. */
  readonly lost: Promise<Error>;
  #server: Homeserver | undefined;
  #rpc: HttpRpc | undefined;
  #isWriter = false;
  #writerBefore: string | undefined;
  /** Numbers of the others at the last look, and of those who were lost by then. */
  #others: ReadonlySet<number> = new Set();
  #lostBefore: ReadonlySet<number> = new Set();
  #writerKnown: { readonly view: ProcessView; readonly address: ProcessAddress } | undefined;
  #sharing: { readonly view: ProcessView; readonly isKnown: boolean } | undefined;
  #changing: Promise<void> | undefined;
  /** One at a time: what the last one took over holds. */
  readonly #reloads = new Semaphore(1);
  #stopped: Promise<void> | undefined;
  #isStopping = false;
  #tellLost: (reason: Error) => void = () => {};

  private constructor(
    private config: Config,
    private readonly overrides: HomeserverOverrides,
    private readonly options: AmongOptions,
    private readonly registry: ProcessRegistry,
    private readonly claim: DatabaseClaim,
    private readonly secret: string,
  ) {
    this.lost = new Promise((resolve) => (this.#tellLost = resolve));
    for (const lost of [registry.lost, claim.lost]) void lost.then((reason) => this.#lose(reason));
    options.signal?.addEventListener('abort', () => (this.#isStopping = true));
  }

  /** @throws an error for which `startupMessage` has a line, when it is the operator's to mend */
  static async start(config: Config, overrides: HomeserverOverrides, own: AmongOptions): Promise<AmongProcesses> {
    checkShareable(config);
    const options = databaseOptions(config);
    const clock = new SystemClock();
    const { logger } = own;
    const state = stateDatabaseOptions(config);
    const claim = await claimDatabases(state ? [options, state] : [options], { logger, isShared: true });
    try {
      const secret = secretOf(config, overrides.ids ?? new SystemIds());
      const database = await openDatabase(options, clock, logger);
      let registry: ProcessRegistry;
      try {
        // The first that comes makes the tables in which they are registered.
        await migrate(database, migrations, { logger, clock, mayRaise: checkOthersServe });
        registry = await joinProcesses(options as PostgresOptions, {
          ...{ name: own.name, version, logger },
          address: JSON.stringify(ownVersions satisfies Addresses),
        });
        try {
          // A newer one may have changed it before this one was registered; from now on it would ask.
          checkServable(await readSchemaState(database), migrations);
        } catch (error) {
          await registry.leave();
          throw error;
        }
      } finally {
        await database.close();
      }
      const among = new AmongProcesses(config, overrides, own, registry, claim, secret);
      try {
        among.#checkVersions();
        own.signal?.throwIfAborted();
        await among.#beginSomewhere();
        own.signal?.throwIfAborted();
      } catch (error) {
        await among.stop();
        throw error;
      }
      registry.onView((view) => among.#look(view));
      return among;
    } catch (error) {
      await claim.release();
      throw error;
    }
  }

  /** The server of this process now; another one after it has taken another place. */
  get server(): Homeserver {
    if (!this.#server) throw new Error('The process has no server now');
    return this.#server;
  }

  /** Whether this process is the one that writes. */
  get isWriter(): boolean {
    return this.#isWriter;
  }

  /** Takes over changed settings, as {@link Homeserver.reload} does, also for what it begins later. */
  reload(next: Config): ReturnType<Homeserver['reload']> {
    return this.#reloads.run(async () => {
      for (;;) {
        await this.#changing;
        const { server } = this;
        const report = await server.reload(next);
        this.config = next;
        // Otherwise it has taken another place meanwhile, with the settings of before.
        if (this.#server === server) return report;
      }
    });
  }

  /** Answers what is under way and ends; another process takes over what this one did. Never rejects. */
  stop(): Promise<void> {
    this.#isStopping = true;
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    await this.#changing;
    await this.#end();
    await this.registry.leave();
    // At once rather than with their next heartbeat.
    const farewell = this.#newRpc(this.options.name);
    await farewell.callOthers(othersLookAgain, undefined);
    await farewell.close();
    await this.claim.release();
  }

  async #end(): Promise<void> {
    await this.#server?.stop();
    await this.#rpc?.close();
    this.#server = undefined;
    this.#rpc = undefined;
  }

  #lose(reason: Error): void {
    this.#isStopping = true;
    this.#tellLost(reason);
  }

  async #takeWriting(): Promise<boolean> {
    if (!this.options.canWrite) return false;
    return (await this.registry.acquire([writer])).length > 0;
  }

  async #beginSomewhere(): Promise<void> {
    if (await this.#takeWriting()) return this.#begin(true);
    const untilMs = performance.now() + deadWriterMs;
    for (let tries = 0; ; tries++) {
      try {
        return await this.#begin(false);
      } catch (error) {
        const isVacant = error instanceof VacantError;
        if (!isVacant && (this.#isStopping || !isUnavailable(error) || performance.now() > untilMs)) throw error;
        await this.#end();
        if (isVacant) return this.#begin(true);
        if (tries === 0)
          this.options.logger.info('The process that writes does not answer: waiting until it does, or is replaced');
        await new Promise((resolve) => setTimeout(resolve, 500));
        await this.registry.beat();
      }
    }
  }

  /** An upgrade goes from process to process: each must understand those that are left. @throws StartupError */
  #checkVersions(): void {
    for (const { number, name, address, version: theirVersion } of this.registry.view.processes) {
      if (number === this.registry.number || address === undefined) continue;
      const protocol = protocolOf(addressesIn(address));
      if (canSpeak(protocol, processProtocol)) continue;
      throw new StartupError(
        `A process of this server (${name}, version ${theirVersion}) speaks version ${protocol} between processes, this one ` +
          `(version ${version}) speaks version ${processProtocol}. Upgrade by way of a version between them, or stop the others first.`,
      );
    }
  }

  /** Begins a server in a place. */
  async #begin(isWriter: boolean): Promise<void> {
    const { options, registry, secret } = this;
    const { logger, host } = options;
    const name = isWriter ? writer : options.name;
    const rpc = (this.#rpc = this.#newRpc(name));
    // Whoever asks for that has something lost that it said.
    rpc.handle(catchUp, () => this.#catchUp(true));
    rpc.handle(othersLookAgain, () => registry.beat());
    const addresses: Addresses = { rpc: await rpc.listen(host), ...ownVersions };
    await registry.moveTo(JSON.stringify(addresses));
    if (isWriter) await registry.started();
    else await this.#writerIsThere();
    const bus = await RedisBus.connect({
      ...redisOptions(this.config),
      ...{ server: this.config.serverName, id: String(registry.number), logger: logger.child('redis') },
      catchUp: (hasMissed) => this.#catchUp(hasMissed),
      makeOthersCatchUp: async () => void (await rpc.callOthers(catchUp, undefined)),
    });
    this.#isWriter = isWriter;
    this.#writerBefore = this.#writerNow();
    // What those have written is there: the server reads it.
    this.#lostBefore = new Set(registry.view.lost);
    const server = Homeserver.create(this.config, {
      ...this.overrides,
      logger,
      place: {
        ...{ name, writer, bus, rpc, leases: registry, secret, processNumber: registry.number },
        ...(!isWriter && { sharing: { isKnown: () => this.#writerShares(), canTell: () => bus.isUp } }),
        sharesPorts: options.sharesPorts,
        listen: { host, port: 0, tls: options.encrypted },
        writerAddress: () => this.#writerAddress(),
      },
    });
    this.#server = server;
    options.onServer?.(server);
    // Before it writes anything: only of those whom they have seen can others miss something.
    if (!isWriter) await rpc.callOthers(othersLookAgain, undefined);
    await server.start();
    if (isWriter) {
      await registry.moveTo(JSON.stringify({ ...addresses, fellows: server.fellowsAddress }));
      await rpc.callOthers(othersLookAgain, undefined);
    } else {
      // What was said while it started was said to nobody where Redis came, or the process that writes went, in between.
      await this.#catchUp();
      await registry.started();
    }
    logger.info(isWriter ? 'This process writes' : 'This process answers beside the one that writes', {
      process: options.name,
    });
  }

  #newRpc(name: string): HttpRpc {
    return new HttpRpc({
      ...{ instance: name, secret: this.secret, logger: this.options.logger, processNumber: this.registry.number },
      encrypted: this.options.encrypted,
      addressOf: (instance) => this.#addressesOf(instance)?.rpc,
      others: () =>
        this.registry.view.processes.filter(({ number }) => number !== this.registry.number).map((one) => one.name),
    });
  }

  #addressesOf(instance: string): Addresses | undefined {
    const { processes, leases } = this.registry.view;
    const holder = leases.get(writer);
    const one = processes.find(({ number, name }) =>
      instance === writer ? number === holder : name === instance || instanceOf(number) === instance,
    );
    return one?.address === undefined ? undefined : addressesIn(one.address);
  }

  async #writerAddress(): Promise<ProcessAddress | undefined> {
    const { view } = this.registry;
    // Each request that is passed on asks; views are told now and then.
    if (this.#writerKnown?.view === view) return this.#writerKnown.address;
    const known = this.#addressesOf(writer)?.fellows;
    if (known) {
      this.#writerKnown = { view, address: known };
      return known;
    }
    await this.registry.beat();
    return this.#addressesOf(writer)?.fellows;
  }

  /** A place beside the writer is worth nothing before there is one. */
  async #writerIsThere(): Promise<void> {
    const { logger } = this.options;
    for (let tries = 0; !this.#isStopping; tries++) {
      if ((await this.#writerAddress()) !== undefined) return;
      if (tries === 20) logger.info('Waiting for the process that writes');
      if (this.options.canWrite && !this.registry.view.leases.has(writer) && (await this.#takeWriting()))
        throw new VacantError();
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new StartupError('The process was stopped before there was one that writes');
  }

  /** Who writes, as something that differs when another one begins. */
  #writerNow(): string | undefined {
    const fellows = this.#addressesOf(writer)?.fellows;
    return fellows && `${this.registry.view.leases.get(writer)} ${fellows.host}:${fellows.port}`;
  }

  #look(view: ProcessView): void {
    if (this.#isStopping || this.#changing) return;
    this.#lookForMissing(view);
    this.#rpc?.hangUp((instance) =>
      instance === writer ? !view.leases.has(writer) : view.lost.some((number) => instanceOf(number) === instance),
    );
    if (this.#isWriter) return;
    const now = this.#writerNow();
    // Nobody answers what was passed on to one that is gone, though it may keep its connections; whoever waits for that could not take its place.
    if (!view.leases.has(writer)) this.#server?.leaveWriter();
    else if (now !== undefined && now !== this.#writerBefore) {
      this.#writerBefore = now;
      void this.#server?.followWriter();
    }
    if (view.leases.has(writer) || !this.options.canWrite) return;
    this.#changing = this.#succeed().finally(() => (this.#changing = undefined));
  }

  /** Who has gone may have written what it could not tell any more. What it had to say of caches is told nowhere else. */
  #lookForMissing(view: ProcessView): void {
    const [others, lost] = [new Set(view.processes.map(({ number }) => number)), new Set(view.lost)];
    const isLost = [...lost].some((number) => !this.#lostBefore.has(number));
    const hasLeft = [...this.#others].some((number) => !others.has(number));
    [this.#others, this.#lostBefore] = [others, lost];
    if (isLost) this.#server?.forgetHeard();
    if (isLost || hasLeft) void this.#catchUp();
  }

  /** Takes the place of the process that wrote, if no other does. */
  async #succeed(): Promise<void> {
    try {
      if (this.#isStopping || !(await this.#takeWriting())) return;
      this.options.logger.info('This process takes the place of the one that wrote', { process: this.options.name });
      await this.#end();
      if (!this.#isStopping) await this.#begin(true);
    } catch (error) {
      this.options.logger.error('The place of the process that wrote could not be taken', { err: error });
      this.#lose(error as Error);
    }
  }

  /** Whether the process that writes knows that others write as well. */
  #writerShares(): boolean {
    const { view } = this.registry;
    if (this.#sharing?.view !== view)
      this.#sharing = { view, isKnown: protocolOf(this.#addressesOf(writer)) >= sharingSince };
    return this.#sharing.isKnown;
  }

  async #catchUp(hasMissed = false): Promise<void> {
    await this.#server?.catchUp(hasMissed);
  }
}

/** Whether something failed because another process could not be asked. */
const isUnavailable = (error: unknown): boolean => MatrixError.is(error) && error.status === 503;

/** While this process waited for the one that writes, that place fell vacant and is its own now. */
class VacantError extends Error {}

/** Known to whoever has the settings of this server: the secret that they name, or one that follows from its signing key. */
function secretOf(config: Config, ids: Ids): string {
  const given = config.get('worker_replication_secret');
  if (given !== undefined) return given;
  const [key] = loadSigningKeys(config, ids);
  return createHmac('sha256', key?.serialize() ?? '')
    .update('processes of one server')
    .digest('base64url');
}

const protocolOf = (addresses: Addresses | undefined): number => addresses?.protocol ?? addresses?.rpc?.protocol ?? 1;

const addressesIn = (text: string): Addresses => JSON.parse(text) as Addresses;

/**
 * A database is not changed beneath a process that could not serve it afterwards: neither where that needs a later version of the schema,
 * nor where steps of the version that it knows are missing, which it would have taken when it began, had it known them.
 * @throws StartupError
 */
async function checkOthersServe(tx: Tx, compatVersion: number): Promise<void> {
  const others = await runningProcesses(tx);
  // Whatever those have taken is there by now.
  const missing = pendingMigrations(await readSchemaState(tx), migrations);
  for (const { name, version: theirVersion, address } of others) {
    const { schema = 1 } = address === null ? {} : addressesIn(address);
    const unknown = missing.find((step) => step.version <= schema);
    if (schema >= compatVersion && unknown === undefined) continue;
    const [need, knows] =
      schema < compatVersion
        ? [`schema version ${compatVersion} or newer`, `knows versions up to ${schema}`]
        : [`programs that know the step ${unknown?.name}`, 'does not'];
    throw new StartupError(
      `The database would need ${need} afterwards, and a process of this server that runs (${name}, version ${theirVersion}) ` +
        `${knows}: stop such processes first. "rookery upgrade check" tells what changes.`,
    );
  }
}
