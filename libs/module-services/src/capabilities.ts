import { Injectable } from '@nestjs/common';
import { FederationClient } from '@rookery/federation-client';
import { OutboundHttp } from '@rookery/http';
import type { AccountApi, MessagingApi, RoomApi } from '@rookery/module-api';
import type { ModuleCapabilities } from '@rookery/module-host';
import { BackgroundTasks, Config } from '@rookery/platform';
import { AccountCalls } from './accounts/account-calls.js';
import { JobRunner } from './jobs/jobs.js';
import { MessagingCalls } from './messaging/messaging-calls.js';
import { RoomCalls } from './rooms/room-calls.js';
import { ModuleCopies } from './module-copies.js';
import { ModuleDocuments } from './storage/documents.query.js';
import { ModuleTables } from './storage/tables.js';
import { federationApi } from './web/module-federation.js';
import { httpClient } from './web/module-http-client.js';
import { moduleUrls } from './web/module-urls.js';

/** What all modules may call alike. */
@Injectable()
export class SharedCalls {
  readonly calls: ModuleCapabilities['shared'];

  constructor(
    config: Config,
    tasks: BackgroundTasks,
    http: OutboundHttp,
    accounts: AccountCalls,
    rooms: RoomCalls,
    messaging: MessagingCalls,
  ) {
    const worker = config.get('worker_app');
    const workerName = worker === undefined ? undefined : (config.get('worker_name') ?? worker);
    const offered: Omit<AccountApi, 'completeSsoLogin'> & RoomApi & MessagingApi = {
      ...accounts.calls,
      ...rooms.calls,
      ...messaging.calls,
    };
    this.calls = {
      ...offered,
      serverName: config.serverName,
      publicBaseurl: config.get('public_baseurl'),
      urlOf: moduleUrls(config),
      emailAppName: config.get('email.app_name'),
      workerName,
      workerApp: worker,
      httpClient: httpClient(http),
      shouldRunBackgroundTasks: () => tasks.holds('writer'),
    };
  }
}

/** What the server offers to modules, by the services of its domains. */
@Injectable()
export class ServerCapabilities implements ModuleCapabilities {
  readonly shared: ModuleCapabilities['shared'];
  readonly federation: ModuleCapabilities['federation'];
  readonly writer: ModuleCapabilities['writer'];

  constructor(
    shared: SharedCalls,
    client: FederationClient,
    readonly documents: ModuleDocuments,
    readonly jobs: JobRunner,
    readonly tables: ModuleTables,
    readonly copies: ModuleCopies,
  ) {
    this.shared = shared.calls;
    this.federation = federationApi(client);
    this.writer = copies.writer;
  }
}
