import { Module } from '@nestjs/common';
import { CreateRoomController } from './creation/create-room.controller.js';
import { DelayedEventsController } from './delayed/delayed-events.controller.js';
import { AliasController } from './directory/alias.controller.js';
import { HistoryController } from './history/history.controller.js';
import { MembershipController } from './membership/membership.controller.js';
import { DirectoryController } from './directory/directory.controller.js';
import { SpaceController } from './directory/space.controller.js';
import { RelationsController } from './relations/relations.controller.js';
import { ReportsController } from './reports/reports.controller.js';
import { UpgradeController } from './upgrade/upgrade.controller.js';
import { RoomsModule } from './rooms.module.js';
import { SendController } from './sending/send.controller.js';
import { RetentionController } from './upkeep/retention.controller.js';

/** The rooms part of the client API. */
@Module({
  imports: [RoomsModule],
  controllers: [
    AliasController,
    CreateRoomController,
    DelayedEventsController,
    HistoryController,
    MembershipController,
    SendController,
    DirectoryController,
    SpaceController,
    RelationsController,
    ReportsController,
    RetentionController,
    UpgradeController,
  ],
})
export class RoomsHttpModule {}
