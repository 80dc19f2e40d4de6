import 'reflect-metadata';
import {
  ConsoleLogger,
  type DynamicModule,
  type ForwardReference,
  type InjectionToken,
  Logger,
  type LoggerService,
  Scope,
  type Type,
  ValidationPipe,
  type ValidationPipeOptions,
} from '@nestjs/common';
import { APP_FILTER, ModulesContainer, NestFactory } from '@nestjs/core';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import { defineModule, type ModuleApi, type ModuleLog, type RookeryModule } from '@rookery/module-api';
import { MatrixEvents } from './events.js';
import { registerHandlers } from './handlers.js';
import { partsOf } from './services.js';
import { settingsOf } from './settings.js';
import { MatrixAdminGuard, MatrixErrors, MatrixUserGuard, webAdapter, webHandler } from './web.js';

/** A Rookery module that is a Nest module. */
export interface NestModuleOptions<Settings extends object> {
  /** As in `defineModule`. */
  readonly name: string;
  /** As in `defineModule`. */
  readonly apiVersion?: string;
  /**
   * The `config` of the module's entry: a class with class-validator's decorators, by which it can be injected. Without it the
   * entry has no `config`.
   */
  readonly settings?: Type<Settings>;
  /** The root module, or what makes it for the settings. */
  readonly module: Type<unknown> | ((settings: Settings, api: ModuleApi) => DynamicModule | Promise<DynamicModule>);
  /** Where the controllers lie, for example `/_synapse/client/notes`. Needed where there are any. */
  readonly webResource?: string;
  /** How bodies and parameters that have a class are checked; `false`: not at all. What the class does not have is dropped. */
  readonly validation?: ValidationPipeOptions | false;
  /** Looks after the application before it is made ready: further global pipes, guards, interceptors. */
  prepare?(app: NestFastifyApplication): void | Promise<void>;
}

/**
 * Declares a module that is written as a Nest module: its providers' methods are callbacks by their decorators, its controllers
 * answer below `webResource`, and the parts of the module API can be injected by their classes. A package exports the result as its
 * default export. The application begins while the module registers, and ends (`onModuleDestroy`, `onApplicationShutdown`)
 * when it is taken out of service or reloaded.
 *
 * ```ts
 * export default nestModule({ name: 'notes', settings: NotesSettings, module: NotesModule, webResource: '/_synapse/client/notes' });
 * ```
 */
export function nestModule<Settings extends object = object>(
  options: NestModuleOptions<Settings>,
): RookeryModule<Settings | undefined> {
  const { name, apiVersion, settings } = options;
  return defineModule<Settings | undefined>({
    name,
    ...(apiVersion !== undefined && { apiVersion }),
    ...(settings && { parseConfig: (raw: unknown) => settingsOf(settings, raw) }),
    async register(api, config) {
      const app = await start(options, api, config);
      api.onStop(() => app.close());
    },
  });
}

async function start<Settings extends object>(
  options: NestModuleOptions<Settings>,
  api: ModuleApi,
  config: Settings | undefined,
): Promise<NestFastifyApplication> {
  const { module, webResource, validation, settings } = options;
  const root = isClass(module) ? module : await module(config as Settings, api);
  const events = new MatrixEvents(api.log);
  let isListening = false;
  let container: ModulesContainer | undefined;
  const offered = {
    providers: [
      ...partsOf(api),
      // Made for each who asks for it, so that nobody is told of events whom nobody hears.
      { provide: MatrixEvents, scope: Scope.TRANSIENT, useFactory: () => ((isListening = true), events) },
      ...(settings ? [{ provide: settings as InjectionToken, useValue: config }] : []),
      MatrixUserGuard,
      MatrixAdminGuard,
      MatrixErrors,
    ],
  };
  const shared: DynamicModule = {
    ...{ module: SharedParts, global: true, providers: offered.providers },
    exports: offered.providers.map((each) => ('provide' in each ? each.provide : each)),
  };
  logTo(api.log);
  const own = [
    { provide: APP_FILTER, useExisting: MatrixErrors },
    { provide: HandlersOfModule, inject: [ModulesContainer], useFactory: (all: ModulesContainer) => (container = all) },
  ];
  const app = await NestFactory.create<NestFastifyApplication>(
    {
      module: RootOfModule,
      providers: own,
      imports: [shared, root as Type<unknown> | DynamicModule | ForwardReference],
    },
    webAdapter(),
    // A module that cannot start is no reason for the process to end.
    { abortOnError: false },
  );
  try {
    if (validation !== false)
      app.useGlobalPipes(new ValidationPipe({ whitelist: true, transform: true, ...validation }));
    await options.prepare?.(app);
    await app.init();
    await app.getHttpAdapter().getInstance().ready();
    if (!container) throw new Error('Nest made the application without its providers');
    const tell = (...[event, state]: Parameters<MatrixEvents['tell']>): Promise<void> => events.tell(event, state);
    registerHandlers(container, api, isListening ? tell : undefined);
    const hasControllers = [...container.values()].some(({ controllers }) => controllers.size > 0);
    if (webResource !== undefined) {
      api.registerWebResource(`${webResource.replace(/\/$/, '')}/*`, webHandler(app));
    } else if (hasControllers) throw new Error('There are controllers, but no webResource where they lie');
  } catch (error) {
    await app.close();
    throw error;
  }
  const close = app.close.bind(app);
  app.close = async () => {
    events.end();
    await close();
  };
  return app;
}

class SharedParts {}
/** Under which the providers of the module are known, to find their decorators. */
class HandlersOfModule {}
class RootOfModule {}

const isClass = (value: unknown): value is Type<unknown> =>
  typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value));

/**
 * What Nest itself has to say. It has one log for all its applications: where the server's is one of them, that is the server's
 * already, and stays.
 */
function logTo(log: ModuleLog): void {
  const { staticInstanceRef } = Logger as unknown as { staticInstanceRef?: object };
  if (staticInstanceRef !== undefined && Object.getPrototypeOf(staticInstanceRef) !== ConsoleLogger.prototype) return;
  const quiet = (message: unknown): void => log.debug(String(message));
  Logger.overrideLogger({
    ...{ log: quiet, debug: quiet, verbose: quiet },
    warn: (message: unknown) => log.warn(String(message)),
    error: (message: unknown) => log.error(String(message)),
    fatal: (message: unknown) => log.error(String(message)),
  } satisfies LoggerService);
}
