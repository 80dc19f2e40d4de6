import { Module } from '@nestjs/common';
import { FederationClientModule } from '@rookery/federation-client';
import { MediaModule } from '@rookery/media';
import { RoomsModule } from '@rookery/rooms';
import { BackgroundUpdatesController } from './background-updates/background-updates.controller.js';
import { RoomUpdates } from './background-updates/room-updates.js';
import { ReportLibraryController } from './event-reports/reports.controller.js';
import { ExperimentalFeaturesController } from './experimental-features/experimental-features.controller.js';
import { DestinationsController } from './federation/destinations.controller.js';
import { AdminKitModule } from './http/admin-kit.module.js';
import { AdministratorsPageController } from './modules/administrators-page.controller.js';
import { ModulesController } from './modules/modules.controller.js';
import { RoomMedia } from './media/room-media.js';
import { RoomMediaController } from './media/room-media.controller.js';
import { AdminRoomsModule } from './rooms/admin-rooms.module.js';
import { SendNoticeController } from './server-notices/send-notice.controller.js';
import { ServerNoticesModule } from './server-notices/server-notices.module.js';
import { StatisticsController } from './statistics/statistics.controller.js';
import { AllBackgroundTasks } from './tasks/all-background-tasks.js';
import { BackgroundTasksController } from './tasks/background-tasks.controller.js';
import { ScheduledTasksController } from './tasks/scheduled-tasks.controller.js';

/** The admin API of rooms, reports, other servers and the server's own work. */
@Module({
  imports: [AdminKitModule, AdminRoomsModule, FederationClientModule, MediaModule, RoomsModule, ServerNoticesModule],
  controllers: [
    AdministratorsPageController,
    BackgroundUpdatesController,
    DestinationsController,
    ExperimentalFeaturesController,
    ModulesController,
    ReportLibraryController,
    RoomMediaController,
    BackgroundTasksController,
    ScheduledTasksController,
    SendNoticeController,
    StatisticsController,
  ],
  providers: [AllBackgroundTasks, RoomMedia, RoomUpdates],
})
export class AdminOperationsModule {}
