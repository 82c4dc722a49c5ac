-- A journal as the first Penstock that shipped wrote it (its tables carry no version).
BEGIN TRANSACTION;
CREATE TABLE action (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	kind VARCHAR NOT NULL,
	policy VARCHAR NOT NULL,
	unit VARCHAR,
	subject VARCHAR,
	reason VARCHAR NOT NULL,
	status VARCHAR NOT NULL,
	refused VARCHAR,
	payload VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "action" VALUES(1,'r',15.0,'LeaseHost','threshold','a','c-h1','needed','enacted',NULL,'{"host": "c-h1", "site": "c", "flavour": "m", "reason": "needed", "unit": "a"}');
INSERT INTO "action" VALUES(2,'r',15.0,'Hold','threshold','b','b','calm','held',NULL,'{}');
INSERT INTO "action" VALUES(3,'r',30.0,'StartInstance','threshold','a','a-3','queue','intended',NULL,'{"instance": "a-3", "unit": "a", "host": "c-h1", "reason": "queue"}');
CREATE TABLE budget (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	unit VARCHAR NOT NULL,
	budget_s FLOAT NOT NULL,
	reason VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "budget" VALUES(1,'r',15.0,'a',0.75,'first');
CREATE TABLE charge (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	host VARCHAR NOT NULL,
	units INTEGER NOT NULL,
	amount VARCHAR NOT NULL,
	reason VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "charge" VALUES(1,'r',15.0,'c-h1',1,'0.016666666667','needed');
CREATE TABLE lease (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	host VARCHAR NOT NULL,
	site VARCHAR NOT NULL,
	flavour VARCHAR NOT NULL,
	btu_s FLOAT NOT NULL,
	price_per_btu VARCHAR NOT NULL,
	units INTEGER NOT NULL,
	ended_s FLOAT,
	currency VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "lease" VALUES(1,'r',15.0,'c-h1','c','m',600.0,'0.016666666667',1,NULL,'EUR');
CREATE TABLE notice (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	text VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "notice" VALUES(1,'r',15.0,'it''s up');
CREATE TABLE observation (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	unit VARCHAR NOT NULL,
	interval_s FLOAT NOT NULL,
	arrived INTEGER,
	processed INTEGER,
	emitted INTEGER,
	waiting INTEGER,
	in_service INTEGER,
	duration_s FLOAT,
	duration_p95_s FLOAT,
	duration_p99_s FLOAT,
	service_s FLOAT,
	arrival_cv FLOAT,
	service_cv FLOAT,
	latency_s FLOAT,
	latency_p95_s FLOAT,
	cpu_ratio FLOAT,
	memory_ratio FLOAT,
	cpu_std FLOAT,
	memory_std FLOAT,
	trusted BOOLEAN NOT NULL,
	instances INTEGER,
	running INTEGER,
	PRIMARY KEY (id)
);
INSERT INTO "observation" VALUES(1,'r',15.0,'a',15.0,75,70,140,5,3,0.25,0.5,0.75,0.1,1.01,0.24,1.5,2.5,0.5,0.25,0.02,0.01,0,1,1);
INSERT INTO "observation" VALUES(2,'r',15.0,'b',15.0,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,0,0);
CREATE TABLE tick (
	id INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	at_s FLOAT NOT NULL,
	decided BOOLEAN NOT NULL,
	next_host INTEGER NOT NULL,
	next_instance INTEGER NOT NULL,
	hosts INTEGER NOT NULL,
	hosts_up INTEGER NOT NULL,
	bill VARCHAR NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "tick" VALUES(1,'r',15.0,1,2,3,1,1,'0.016666666667');
INSERT INTO "tick" VALUES(2,'r',30.0,1,2,4,1,1,'0.016666666667');
INSERT INTO "tick" VALUES(3,'other',5.0,0,1,1,0,0,'0');
CREATE INDEX action_intended ON action (run) WHERE status = 'intended';
COMMIT;
