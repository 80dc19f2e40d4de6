import { Controller, Injectable, Module, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import {
  callbackTable,
  ConfigError,
  type ModuleApi,
  type ModuleEvent,
  NOT_SPAM,
  type RoomStateView,
  type RookeryModule,
} from '@rookery/module-api';
import { Type } from 'class-transformer';
import { IsInt, IsString, Min, ValidateNested } from 'class-validator';
import * as nest from './index.js';
import { CheckEventForSpam, Every, Job, MatrixApi, MatrixLog, nestModule, OnMatrixEvent, OnNewEvent } from './index.js';

type Registered = Record<string, Record<string, (...args: unknown[]) => unknown>>;

/** What a module registers, and the end of it. */
function hostOf() {
  const registered: Registered = {};
  const stops: (() => Promise<void> | void)[] = [];
  const jobs: string[] = [];
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const own: Record<string, unknown> = {
    ...{ moduleName: 'test', log, store: {}, metrics: {}, httpClient: {}, federation: {} },
    ...{ accountDataManager: {}, publicRoomListManager: {} },
    scheduler: {
      every: (name: string, ms: number) => jobs.push(`${name} every ${ms}`),
      handle: (name: string) => jobs.push(name),
    },
    onStop: (fn: () => void) => stops.push(fn),
    registerWebResource: (path: string, answer: (...args: unknown[]) => unknown) =>
      (registered['web'] = { ...registered['web'], [path]: answer }),
  };
  const api = new Proxy(own, {
    get: (target, name: string) =>
      name in target || !name.startsWith('register')
        ? target[name]
        : (given: Registered[string]) => (registered[name] = { ...registered[name], ...given }),
  }) as unknown as ModuleApi;
  return { api, registered, jobs, stop: async () => Promise.all(stops.map(async (fn) => fn())) };
}

const start = async (module: RookeryModule<never>, config?: unknown) => {
  const host = hostOf();
  await module.register(host.api, config as never);
  return host;
};

const state = {} as RoomStateView;
const context = { source: 'server', isAdmin: false, duringRoomCreation: false } as const;

it('has a decorator for every callback', () => {
  const names = Object.keys(callbackTable).map((name) =>
    name === 'authCheckers' ? 'AuthChecker' : name[0]!.toUpperCase() + name.slice(1),
  );
  expect(names.filter((name) => typeof (nest as Record<string, unknown>)[name] !== 'function')).toEqual([]);
});

describe('a module that is a Nest module', () => {
  const order: string[] = [];
  @Injectable()
  class Clock {
    constructor(readonly api: MatrixApi) {}
  }
  @Injectable()
  class Watcher implements OnModuleInit, OnModuleDestroy {
    readonly seen: string[] = [];
    constructor(
      private readonly clock: Clock,
      private readonly log: MatrixLog,
    ) {}
    onModuleInit(): void {
      order.push(`init ${this.clock.api.moduleName} ${typeof this.log.info}`);
    }
    onModuleDestroy(): void {
      order.push('destroy');
    }
    @CheckEventForSpam()
    check(event: ModuleEvent) {
      return event.type === 'm.bad' ? { message: this.clock.api.moduleName } : NOT_SPAM;
    }
    @OnMatrixEvent('m.a', 'm.b')
    some({ type }: ModuleEvent): void {
      order.push(`some ${type}`);
    }
    @OnNewEvent()
    async all({ type }: ModuleEvent): Promise<void> {
      order.push(`all ${type}`);
    }
    @Every('tidy', 60_000)
    tidy(): void {}
    @Job('remind')
    remind(_payload: unknown): void {}
  }
  @Module({ providers: [Clock, Watcher] })
  class Root {}

  it('answers by the methods of its providers, runs their jobs, begins and ends', async () => {
    order.length = 0;
    const { registered, jobs, stop } = await start(nestModule({ name: 'test', module: Root }) as RookeryModule<never>);
    expect(order).toEqual(['init test function']);
    const { checkEventForSpam } = registered['registerSpamCheckerCallbacks']!;
    expect(await checkEventForSpam!({ type: 'm.bad' }, context)).toEqual({ message: 'test' });
    expect(await checkEventForSpam!({ type: 'm.good' }, context)).toBe(NOT_SPAM);
    const { onNewEvent } = registered['registerThirdPartyRulesCallbacks']!;
    await onNewEvent!({ type: 'm.a' }, state, context);
    await onNewEvent!({ type: 'm.c' }, state, context);
    expect(order.slice(1)).toEqual(['some m.a', 'all m.a', 'all m.c']);
    expect(jobs).toEqual(['tidy every 60000', 'remind']);
    expect(registered['web']).toBeUndefined();
    await stop();
    expect(order.at(-1)).toBe('destroy');
  });

  it('lives beside itself: a reload begins the new one before the old one ends', async () => {
    order.length = 0;
    const module = nestModule({ name: 'test', module: Root }) as RookeryModule<never>;
    const [first, second] = [await start(module), await start(module)];
    await first.stop();
    expect(order).toEqual(['init test function', 'init test function', 'destroy']);
    const { checkEventForSpam } = second.registered['registerSpamCheckerCallbacks']!;
    expect(await checkEventForSpam!({ type: 'm.bad' }, context)).toEqual({ message: 'test' });
    await second.stop();
  });

  it('cannot have two answers to one question', async () => {
    @Injectable()
    class Other {
      @CheckEventForSpam()
      too() {
        return NOT_SPAM;
      }
    }
    @Module({ providers: [Clock, Watcher, Other] })
    class Both {}
    const starting = start(nestModule({ name: 'test', module: Both }) as RookeryModule<never>);
    await expect(starting).rejects.toThrow('Watcher.check and Other.too both answer checkEventForSpam');
  });

  it('does not start where Nest cannot build it, and the process goes on', async () => {
    @Module({ providers: [Clock, Watcher, { provide: 'x', useFactory: () => Promise.reject(new Error('no luck')) }] })
    class Broken {}
    const starting = start(nestModule({ name: 'test', module: Broken }) as RookeryModule<never>);
    await expect(starting).rejects.toThrow('no luck');
  });

  it('has to say where its controllers lie', async () => {
    @Controller()
    class Pages {}
    @Module({ controllers: [Pages] })
    class Web {}
    const starting = start(nestModule({ name: 'test', module: Web }) as RookeryModule<never>);
    await expect(starting).rejects.toThrow('no webResource');
  });
});

describe('settings as a class', () => {
  class Limit {
    @IsInt()
    @Min(1)
    max = 5;
  }
  class Settings {
    @IsString()
    word!: string;
    @ValidateNested()
    @Type(() => Limit)
    limit = new Limit();
  }
  @Module({})
  class Root {}
  const { parseConfig } = nestModule({ name: 'test', settings: Settings, module: Root });
  const problem = (raw: unknown): unknown => {
    try {
      return parseConfig(raw);
    } catch (error) {
      return error;
    }
  };

  it('are checked, and have defaults', () => {
    const settings = parseConfig({ word: 'x' });
    expect(settings).toBeInstanceOf(Settings);
    expect(settings).toEqual({ word: 'x', limit: { max: 5 } });
  });

  it.each([
    [{}, ['word'], 'word must be a string'],
    [{ word: 'x', limit: { max: 0 } }, ['limit', 'max'], 'max must not be less than 1'],
    [{ word: 'x', words: 1 }, ['words'], 'property words should not exist'],
  ])('%j is refused, naming the setting', (raw, path, message) => {
    const error = problem(raw) as ConfigError;
    expect(error).toBeInstanceOf(ConfigError);
    expect(error).toMatchObject({ path, message: expect.stringContaining(message) });
  });

  it('settings that are no object are refused', () => expect(problem([])).toBeInstanceOf(ConfigError));
});
