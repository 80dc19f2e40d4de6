import { PresenceService } from '@rookery/ephemeral';
import { FederationClient } from '@rookery/federation-client';
import { type HttpApp, RequestAuthenticator } from '@rookery/http';
import { Quarantine } from '@rookery/media';
import type { ModuleCapabilities } from '@rookery/module-host';
import { PushersService, PushRulesService } from '@rookery/push';
import {
  AliasService,
  EventPersister,
  EventStore,
  JoinService,
  MemberEvents,
  MembershipReader,
  MembershipService,
  RoomBlocking,
  RoomCreation,
  RoomDirectory,
  RoomShutdown,
  RoomStateReader,
  TimelineReader,
} from '@rookery/rooms';
import { SsoHandover } from '@rookery/sso';
import {
  AccountDataService,
  AccountService,
  ClientActivity,
  DeactivationService,
  LoginService,
  ProfileService,
  SessionService,
  ThreepidService,
} from '@rookery/users';
import type { PlatformParts } from '../platform.module.js';
import { accountCapabilities } from './accounts.js';
import { documentBackend } from './documents.query.js';
import { federationApi } from './federation.js';
import { httpClient } from './http-client.js';
import { httpPush } from './http-push.js';
import type { JobRunner } from './jobs.js';
import { messagingCapabilities } from './messaging.js';
import { LocalAccounts } from './module-requester.js';
import { roomCapabilities } from './rooms.js';
import { SsoCompletion } from './sso-completion.js';
import { tableBackend } from './tables.js';

/** Name of the process that holds every role unless the settings say otherwise. */
const mainProcess = 'master';

/** What the server offers to modules, by the services of its domains. */
export function createCapabilities(parts: PlatformParts, http: HttpApp, jobs: JobRunner): ModuleCapabilities {
  const { config, database, clock, ids, logger } = parts;
  // Composition is the app's task: the only place that asks the container for services.
  const service = <T>(type: abstract new (...args: never[]) => T): T =>
    http.nest.get<T>(type as Parameters<typeof http.nest.get<T>>[0], { strict: false });
  const accounts = service(AccountService);
  const logins = service(LoginService);
  const profiles = service(ProfileService);
  const local = new LocalAccounts(accounts, config.serverName);
  const worker = config.get('worker_app');
  const workerName = worker === undefined ? undefined : (config.get('worker_name') ?? worker);

  return {
    shared: {
      serverName: config.serverName,
      publicBaseurl: config.get('public_baseurl'),
      emailAppName: config.get('email.app_name'),
      workerName,
      workerApp: worker,
      httpClient: httpClient(parts.outboundHttp),
      shouldRunBackgroundTasks: () =>
        (config.get('run_background_tasks_on') ?? mainProcess) === (workerName ?? mainProcess),
      ...accountCapabilities({
        ...{ database, config, clock, accounts, local, logins, profiles },
        sessions: service(SessionService),
        threepids: service(ThreepidService),
        accountData: service(AccountDataService),
        deactivation: service(DeactivationService),
        activity: service(ClientActivity),
        authenticator: service(RequestAuthenticator),
        sso: new SsoCompletion(local, service(SsoHandover)),
      }),
      ...roomCapabilities({
        ...{ config, local },
        limiter: parts.rateLimiter,
        state: service(RoomStateReader),
        events: service(EventStore),
        persister: service(EventPersister),
        memberships: service(MembershipReader),
        membership: service(MembershipService),
        members: service(MemberEvents),
        joins: service(JoinService),
        creation: service(RoomCreation),
        aliases: service(AliasService),
        directory: service(RoomDirectory),
        blocking: service(RoomBlocking),
        shutdown: service(RoomShutdown),
        timeline: service(TimelineReader),
        quarantine: service(Quarantine),
      }),
      ...messagingCapabilities({
        ...{ config, ids, logger, local },
        pushRules: service(PushRulesService),
        presence: service(PresenceService),
        push: httpPush(service(PushersService), parts.outboundHttp),
        mailer: parts.mailer,
      }),
    },
    federation: federationApi(service(FederationClient)),
    documents: documentBackend(database, clock),
    jobs,
    tables: tableBackend(database, clock),
  };
}
