import { Module } from '@nestjs/common';
import { AdministrationModule } from './administration/administration.module.js';
import { CreationModule } from './creation/creation.module.js';
import { DelayedEventsModule } from './delayed/delayed.module.js';
import { DirectoryModule } from './directory/directory.module.js';
import { HistoryModule } from './history/history.module.js';
import { MembershipModule } from './membership/membership.module.js';
import { ModerationModule } from './moderation/moderation.module.js';
import { PipelineModule } from './pipeline/pipeline.module.js';
import { ReadingModule } from './reading/reading.module.js';
import { RelationsModule } from './relations/relations.module.js';
import { ReportsModule } from './reports/reports.module.js';
import { SendingModule } from './sending/sending.module.js';
import { ServersModule } from './servers/servers.module.js';
import { RoomStateModule } from './state/state.module.js';
import { RoomStoreModule } from './store/store.module.js';
import { UpgradeModule } from './upgrade/upgrade.module.js';
import { UpkeepModule } from './upkeep/upkeep.module.js';

/** What stores and decides, below; what people do, above. */
const activities = [
  ...[RoomStoreModule, RoomStateModule, PipelineModule],
  ...[ReadingModule, HistoryModule, RelationsModule, SendingModule, MembershipModule, DirectoryModule, CreationModule],
  ...[DelayedEventsModule, ServersModule, UpgradeModule, UpkeepModule, ModerationModule, ReportsModule],
  AdministrationModule,
];

/**
 * Rooms: sending, membership, state, history, aliases, one Nest module per activity. Safe in any process. Needs `Database`,
 * `Clock`, `Ids`, `Config`, `Logger`, `RateLimiter`, `Notifier`, `ModuleDispatcher` and this server's `SigningKey` from the
 * app's global modules.
 */
@Module({ imports: activities, exports: activities })
export class RoomsModule {}
